// A FileSystem in memory for tests. It can be full or broken, and it can crash
// and forget everything that was not synced. Thread-safe.
//
// Crash() keeps a file's bytes as of its last Sync(), and a name if its
// directory was synced after the name was made. Directories always survive, and
// a directory's new name at once.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/io/file_system.h"
#include "base/sync/mutex.h"

namespace atl {

class FakeFileSystem : public FileSystem {
 public:
  FakeFileSystem();
  ~FakeFileSystem() override;

  // Simulates a power loss: everything that was not synced is lost. Files
  // opened before must not be used afterwards.
  void Crash();
  // As Crash(), but the disk had begun to write. By a choice that follows from
  // `seed`, each page of 4 KiB of a file's unsynced bytes is kept, zeroed, or
  // as before; an unsynced length is the new one, the old one, or between; and
  // each directory has its present names or those of its last sync.
  void CrashInMidWrite(uint64_t seed);
  // Limits the bytes of all named files together. Writes beyond the limit fail
  // with RESOURCE_EXHAUSTED.
  void SetCapacity(int64_t bytes);
  // Limits them to what they have now.
  void SetFull();
  // Bytes of all files, including open files without a name. (The latter do not
  // count against the capacity.)
  int64_t HeldBytes() const;

  // Calls that fail as on a real disk: after a failed sync, the next one does
  // not retry its bytes.
  struct Fault {
    enum class Call {
      kOpen,
      kRead,
      kWrite,
      kSync,
      kReserve,  // Preallocate.
      kRename,   // Matches the old name.
      kRemove,
      kSyncDirectory,
      kList,
    };
    Call call;
    std::string path_part;  // Matches paths that contain it.
    int error_number = 0;   // The errno of the failure.
    int pass_count = 0;     // Calls that succeed first.
    int fail_count = 1;     // Calls that fail afterwards.
    // Bytes that a failing write still writes.
    int64_t written_bytes = 0;
  };
  void AddFault(Fault fault);
  void ClearFaults();

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override;
  bool Exists(const std::string& path) override;

 private:
  struct Node;
  struct State;
  class File;

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path, bool create);

  std::shared_ptr<State> state_;  // Shared with the open files.
};

}  // namespace atl
