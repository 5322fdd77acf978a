#include "base/io/timed_file_system.h"

#include "base/status/status_macros.h"

namespace atl {
namespace {

class TimedFile : public ForwardingFile {
 public:
  TimedFile(std::unique_ptr<RandomAccessFile> file, const Clock& clock,
            const TimedFileSystem::OnSync& on_sync)
      : ForwardingFile(std::move(file)), clock_(clock), on_sync_(on_sync) {}

  absl::Status WriteStraightAt(int64_t offset,
                               absl::string_view bytes) override {
    return file().WriteStraightAt(offset, bytes);
  }
  absl::Status Sync() override {
    const absl::Time begin = clock_.Now();
    const absl::Status synced = ForwardingFile::Sync();
    on_sync_(clock_.Now() - begin);
    return synced;
  }

 private:
  const Clock& clock_;
  const TimedFileSystem::OnSync& on_sync_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RandomAccessFile>> TimedFileSystem::OpenWritable(
    const std::string& path, bool is_private) {
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                   ForwardingFileSystem::OpenWritable(path, is_private));
  return std::make_unique<TimedFile>(std::move(file), clock_, on_sync_);
}

absl::Status TimedFileSystem::SyncDirectory(const std::string& path) {
  const absl::Time begin = clock_.Now();
  const absl::Status synced = ForwardingFileSystem::SyncDirectory(path);
  on_sync_(clock_.Now() - begin);
  return synced;
}

}  // namespace atl
