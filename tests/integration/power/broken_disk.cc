// Fails calls on files of a program, like a broken disk.
//
// Preloaded into an unchanged program (LD_PRELOAD), it intercepts writes, syncs
// and reads of files. While the file ATOLL_DISK_FAULT exists and says "CALL
// PART ERRNO", a CALL ("write", "sync" or "read") on a file whose path contains
// PART fails with ERRNO, a number. The file may appear and disappear while the
// program runs.
//
// Thread-safe. harness/broken_disk.py writes the file.

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// The intercepted libc function.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// True, with errno set, if `call` on `fd` must fail.
bool Fails(const char* call, int fd) {
  const int before = errno;
  const char* const fault = std::getenv("ATOLL_DISK_FAULT");
  std::FILE* const file = fault == nullptr ? nullptr : std::fopen(fault, "r");
  errno = before;
  if (file == nullptr) return false;
  char broken[16] = "", part[256] = "";
  int error = 0;
  const bool is_whole =
      std::fscanf(file, "%15s %255s %d", broken, part, &error) == 3;
  std::fclose(file);
  char path[4096];
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(self.c_str(), path, sizeof(path) - 1);
  errno = before;
  if (!is_whole || length < 0 || std::strcmp(call, broken) != 0) return false;
  path[length] = '\0';
  if (std::strstr(path, part) == nullptr) return false;
  errno = error;
  return true;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  return Fails("write", fd) ? -1 : next(fd, bytes, size);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  static auto* const next =
      Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return Fails("write", fd) ? -1 : next(fd, bytes, size, offset);
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return pwrite(fd, bytes, size, offset);
}

ssize_t pwritev(int fd, const iovec* pieces, int count, off_t offset) {
  static auto* const next =
      Next<ssize_t(int, const iovec*, int, off_t)>("pwritev");
  return Fails("write", fd) ? -1 : next(fd, pieces, count, offset);
}

ssize_t pwritev64(int fd, const iovec* pieces, int count, off64_t offset) {
  return pwritev(fd, pieces, count, offset);
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  static auto* const next = Next<ssize_t(int, void*, size_t, off_t)>("pread");
  return Fails("read", fd) ? -1 : next(fd, bytes, size, offset);
}

ssize_t pread64(int fd, void* bytes, size_t size, off64_t offset) {
  return pread(fd, bytes, size, offset);
}

int fsync(int fd) {
  static auto* const next = Next<int(int)>("fsync");
  return Fails("sync", fd) ? -1 : next(fd);
}

int fdatasync(int fd) {
  static auto* const next = Next<int(int)>("fdatasync");
  return Fails("sync", fd) ? -1 : next(fd);
}

}  // extern "C"
