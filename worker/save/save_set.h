// Finds an island's local checkpoints in a directory, and reads one process's
// part of one, whichever processes wrote it.
//
// An island of one process has RUN.ISLAND.save. In an island of N processes,
// process I has RUN.ISLAND.I-of-N.save, and RUN.ISLAND.I-of-N.save.next until
// every process has written its file (worker/island/group/DESIGN.md). The
// records that follow a .save are in a .records of the same name.
//
// A process reads only its own file if it holds the same part as when it wrote;
// otherwise also those of others, so all must be in this directory.
//
// Functions are thread-safe while no process writes.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/codec/codec.h"
#include "base/io/file_system.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "worker/save/save_file.h"

namespace atl::worker {

// The directory and name of an island's local checkpoints.
struct SavePlace {
  std::string directory;
  std::string run_id;
  std::string island_id;
};

// The path of process `process_index` of `process_count`; `is_next`: of the new
// file, until all processes have theirs.
std::string SavePath(const SavePlace& place, int process_index,
                     int process_count, bool is_next = false);
std::string RecordsPath(const SavePlace& place, int process_index,
                        int process_count);

// The files of one local checkpoint in the directory.
struct SaveSet {
  std::string name;  // Same on all processes; unique.
  int process_count = 1;
  SaveOutline outline;  // One file's; other files differ only in `held`.
  struct File {
    int process_index = 0;
    std::vector<std::string> paths;  // More than one: copies.
    std::optional<std::vector<IndexRange>> held;
    std::vector<int64_t> record_offsets;  // In the process's RecordsPath().
  };
  std::vector<File> files;
  std::vector<SaveOutline> records;  // As many as all files have.

  // The header of the newest record, or of the whole save.
  const SaveHeader& newest() const {
    return records.empty() ? outline.header : records.back().header;
  }
};

struct FoundSaves {
  std::vector<SaveSet> sets;      // The newest first.
  std::vector<std::string> notes;  // Unused files, and why.
};
FoundSaves FindSaves(FileSystem& file_system, const SavePlace& place);

// Checks that the files of `set` cover `held`, without reading their arrays.
// DATA_LOSS: elements are missing, two files have the same ones, or a file has
// another layout; the message names it and a remedy.
absl::Status CheckSaveSet(const SavePlace& place, const SaveSet& set,
                          const HeldLayout& held);

// Reads the part `held` of `set`, with checksums. Uses another copy if a file
// is damaged. DATA_LOSS: as CheckSaveSet, before any array is read; or a file
// is damaged or does not fit the others.
// `parts`: which SaveParts to read.
absl::StatusOr<Save> ReadSaveSet(FileSystem& file_system,
                                 const SavePlace& place, const SaveSet& set,
                                 const HeldLayout& held,
                                 const codec::Codec& codec,
                                 uint32_t parts = kAllParts);

// Reads the part `held` of set.records[index]. DATA_LOSS: a file is damaged, or
// does not fit the others.
absl::StatusOr<Save> ReadRecordOfSet(FileSystem& file_system,
                                     const SavePlace& place, const SaveSet& set,
                                     size_t index, const HeldLayout& held,
                                     const codec::Codec& codec,
                                     uint32_t parts = kAllParts);

// Removes local checkpoints of other process counts, which are older than that
// of `process_count`, and their records. Best effort.
void RemoveOtherSaves(FileSystem& file_system, const SavePlace& place,
                      int process_count);

}  // namespace atl::worker
