// A directory that gets the files of one export. It may be a person's own
// directory, with other files in it: those stay.
//
// A file is ours if the directory's manifest lists it, the manifest is of an
// export (checkpoint_manifest.h), and an export can have a file of that name. It
// is a person's again once its bytes differ from a whole export's manifest. A
// needed name with a file that is not ours, a link or a directory is an error
// before anything is written; so is a file of another user than the process's,
// whose manifest proves nothing, and a directory of a program's data. Only the
// names in the directory change: it may be a link or a mount point.
//
// Files get random temporary names. Commit replaces in this order, so a reader
// never takes a mixture for a whole model:
//
//   1. an unfinished manifest, which every reader of ours refuses
//   2. config.json and files that the new export lacks are removed: other
//      loaders begin at config.json
//   3. the new files are renamed, config.json last
//   4. the finished manifest is renamed
//
// The directory is synced between these steps. After a crash the unfinished
// manifest says which names are ours, and the lock file has the prefix of the
// temporary names: the next export removes those files and writes its own.
//
// Thread-compatible. A lock file keeps other processes out.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"
#include "base/io/open_directory.h"
#include "base/io/unique_fd.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace atl::worker {

inline constexpr char kConfigName[] = "config.json";
inline constexpr char kGenerationConfigName[] = "generation_config.json";
inline constexpr char kWeightsName[] = "model.safetensors";
inline constexpr char kWeightIndexName[] = "model.safetensors.index.json";

struct ExportDirectoryOptions {
  std::vector<std::string> names;  // The new files, without the manifest.
  CheckpointSource source;
  bool replaces_other = false;  // Another run's or commit's export.
};

class ExportDirectory {
 public:
  // Creates the directory if necessary, locks it and checks it. `file_system`
  // must outlive the object.
  //
  // ALREADY_EXISTS, with a reason: EXPORT_RUNS: another process exports to it.
  // NOT_OURS: a needed name is in use, a file of the export was changed, or the
  // export is another user's. EXPORT_DIFFERS: it has a whole export of another
  // run or commit; `replaces_other` allows to replace it. The directory
  // is unchanged. Others: the file system's.
  static absl::StatusOr<std::unique_ptr<ExportDirectory>> Open(
      FileSystem &file_system, std::string directory,
      ExportDirectoryOptions options);

  // Removes the temporary files, and the directory if Open created it and it is
  // empty.
  ~ExportDirectory();
  ExportDirectory(const ExportDirectory &) = delete;
  ExportDirectory &operator=(const ExportDirectory &) = delete;

  const std::string &path() const { return directory_; }

  // Opens the temporary file of `name`, one of options.names, for writing.
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Create(
      const std::string &name);

  // Puts all files in place. Requires: each is written and synced. Durable on
  // return. After an error the directory has the earlier export, or an
  // unfinished manifest.
  absl::Status Commit(const CheckpointManifest &manifest);

 private:
  ExportDirectory(std::string directory, ExportDirectoryOptions options)
      : directory_(std::move(directory)), options_(std::move(options)) {}

  std::string PathOf(absl::string_view name) const;
  std::string TemporaryNameOf(absl::string_view name) const;
  absl::Status MakeDirectory(FileSystem &file_system);
  absl::Status Lock();
  absl::Status ReadManifest();
  absl::Status CheckNames();
  absl::Status CheckUnchanged() const;
  absl::Status CheckSource() const;
  bool IsOurs(absl::string_view name) const;
  // Removes temporary files that a crash left, and notes our own prefix.
  absl::Status StartTemporaries();
  absl::Status RemoveTemporaries(absl::string_view id);
  absl::Status WriteManifest(const CheckpointManifest &manifest,
                             absl::string_view temporary_name);
  absl::Status RemoveStale();
  absl::Status Rename(const std::string &name);

  const std::string directory_;
  const ExportDirectoryOptions options_;
  bool made_directory_ = false;
  std::unique_ptr<OpenDirectory> opened_;
  UniqueFd lock_;        // Invalid until it is locked.
  std::string left_id_;  // As id_, of an export that crashed.
  std::string id_;       // In temporary names; empty: no names yet.
  std::optional<CheckpointManifest> before_;  // The directory's manifest.
};

}  // namespace atl::worker
