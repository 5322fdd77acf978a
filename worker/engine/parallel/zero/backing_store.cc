#include "worker/engine/parallel/zero/backing_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

class MemoryStore final : public BackingStore {
 public:
  MemoryStore(Arena arena, int64_t byte_count) : arena_(std::move(arena)) {
    data_ = arena_.Take<char>(byte_count);
  }
  absl::Status Read(int64_t offset, void* data, int64_t byte_count) override {
    std::memcpy(data, data_ + offset, byte_count);
    return absl::OkStatus();
  }
  absl::Status Write(int64_t offset, const void* data,
                     int64_t byte_count) override {
    std::memcpy(data_ + offset, data, byte_count);
    return absl::OkStatus();
  }

 private:
  Arena arena_;
  char* data_;
};

absl::Status Failed(const char* what) {
  return absl::DataLossError(absl::StrCat("the optimizer's file could not be ",
                                          what, ": ", strerror(errno)));
}

class FileStore final : public BackingStore {
 public:
  explicit FileStore(int file) : file_(file) {}
  ~FileStore() override { close(file_); }

  absl::Status Read(int64_t offset, void* data, int64_t byte_count) override {
    auto* at = static_cast<char*>(data);
    while (byte_count > 0) {
      const ssize_t n = pread(file_, at, byte_count, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Failed("read");
      at += n;
      offset += n;
      byte_count -= n;
    }
    return absl::OkStatus();
  }
  absl::Status Write(int64_t offset, const void* data,
                     int64_t byte_count) override {
    const auto* at = static_cast<const char*>(data);
    while (byte_count > 0) {
      const ssize_t n = pwrite(file_, at, byte_count, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Failed("written");
      at += n;
      offset += n;
      byte_count -= n;
    }
    return absl::OkStatus();
  }

 private:
  const int file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BackingStore>> MakeMemoryStore(
    int64_t byte_count) {
  ASSIGN_OR_RETURN(Arena arena, Arena::Create(byte_count));
  return std::make_unique<MemoryStore>(std::move(arena), byte_count);
}

absl::StatusOr<std::unique_ptr<BackingStore>> MakeFileStore(
    const std::string& directory, int64_t byte_count) {
  std::string path = absl::StrCat(directory, "/optimizer-XXXXXX");
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create a file for the optimizer's state in \"",
                     directory, "\": ", strerror(errno)));
  }
  auto store = std::make_unique<FileStore>(file);
  unlink(path.c_str());
  const int error = byte_count == 0 ? 0 : posix_fallocate(file, 0, byte_count);
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot reserve ", byte_count, " bytes for the optimizer's state in \"",
        directory, "\": ", strerror(error)));
  }
  return store;
}

}  // namespace atl::engine
