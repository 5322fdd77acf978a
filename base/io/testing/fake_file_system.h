// A FileSystem in memory for tests: it can be full, broken, and it can crash,
// which forgets whatever was not synced.
//
// A file's bytes survive Crash() as of its last Sync(); a name survives if its
// directory was synced after the name was made. Directories always survive.
// Thread-safe.

#ifndef BASE_IO_TESTING_FAKE_FILE_SYSTEM_H_
#define BASE_IO_TESTING_FAKE_FILE_SYSTEM_H_

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

  // Loses power: what was not synced is gone. Open files must not be used
  // after it.
  void Crash();
  // Bytes that all files together may have; writes beyond fail with
  // RESOURCE_EXHAUSTED.
  void SetCapacity(int64_t bytes);
  // Bytes of all files, those included that have no name any more and are open.
  // (What has no name does not count against the capacity.)
  int64_t HeldBytes() const;

  // Calls that fail as a real disk's do: what a sync that fails was to write is
  // not tried by the next one.
  struct Fault {
    enum class Call {
      kOpen,
      kRead,
      kWrite,
      kSync,
      kReserve,  // Preallocate.
      kRename,   // By the old name.
      kRemove,
      kSyncDirectory,
      kList,
    };
    Call call;
    std::string path_part;  // Of paths that contain it.
    int error_number = 0;   // The errno that it ends with.
    int pass_count = 0;     // Calls that are let through before.
    int fail_count = 1;     // Calls that fail; then the fault is over.
    // A write gets so many bytes to its place before it fails.
    int64_t written_bytes = 0;
  };
  void AddFault(Fault fault);
  void ClearFaults();

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override;

 private:
  struct Node;
  struct State;
  class File;

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path, bool create);

  std::shared_ptr<State> state_;  // Shared with the open files.
};

}  // namespace atl

#endif  // BASE_IO_TESTING_FAKE_FILE_SYSTEM_H_
