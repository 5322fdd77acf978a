// Keeps an image of exactly what a program has made durable.
//
// Preloaded into an unchanged program (LD_PRELOAD), it intercepts fsync and
// fdatasync. It copies what is synced below the directory ATOLL_DISK_ROOT to
// ATOLL_DISK_IMAGE. So at any kill the image is the content, after a power
// failure, of a disk that keeps only synced data:
//
//   root          the key of the root directory
//   files/KEY     a file's bytes when it was last synced
//   dirs/KEY      a directory's entries when it was last synced, a line each:
//                 "d" or "f", KEY, name
//
// A key is an inode's number and its time of birth, because numbers are reused.
// Syncing a file does not sync its directory entry, and the other way round.
// The content of the root at the program's start is durable. Nothing is really
// synced, so the program runs faster. ATOLL_DISK_CUT_AT=N: the power fails in the
// middle of the Nth sync, with all that it was to write on its way.
//
// Thread-safe. harness/power.py makes a directory of an image.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

// Never freed: threads may sync while the program ends.
std::mutex& Lock() {
  static std::mutex* const lock = new std::mutex;
  return *lock;
}

const char* Root() { return std::getenv("ATOLL_DISK_ROOT"); }
std::string Image() { return std::getenv("ATOLL_DISK_IMAGE"); }

[[noreturn]] void Die(const std::string& what) {
  std::perror(("durable image: " + what).c_str());
  std::abort();
}

std::string MakeKey(int directory, const char* name, int flags) {
  struct statx info;
  if (statx(directory, name, flags, STATX_INO | STATX_BTIME, &info) != 0) {
    return "";  // It does not exist.
  }
  if ((info.stx_mask & STATX_BTIME) == 0) Die("no time of birth");
  char key[64];
  std::snprintf(key, sizeof(key), "%llu-%lld.%09u",
                static_cast<unsigned long long>(info.stx_ino),
                static_cast<long long>(info.stx_btime.tv_sec),
                info.stx_btime.tv_nsec);
  return key;
}

// Atomic, also if the process is killed meanwhile.
void Publish(const std::string& bytes, const std::string& path) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr ||
      std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
      std::fclose(file) != 0 ||
      std::rename(temporary.c_str(), path.c_str()) != 0) {
    Die(path);
  }
}

void KeepFile(int fd, const std::string& key) {
  // Reopened, because `fd` may be write-only.
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  const int in = open(self.c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0) Die("cannot read " + self);
  std::string bytes;
  char piece[1 << 16];
  for (ssize_t n; (n = read(in, piece, sizeof(piece))) > 0;) {
    bytes.append(piece, static_cast<size_t>(n));
  }
  close(in);
  Publish(bytes, Image() + "/files/" + key);
}

void KeepDirectory(int fd, const std::string& key) {
  const int in = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const directory = in < 0 ? nullptr : fdopendir(in);
  if (directory == nullptr) Die("cannot list a directory");
  std::string lines;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const std::string entry_key =
        MakeKey(fd, name.c_str(), AT_SYMLINK_NOFOLLOW);
    if (entry_key.empty()) continue;
    lines +=
        (entry->d_type == DT_DIR ? "d " : "f ") + entry_key + " " + name + "\n";
  }
  closedir(directory);
  Publish(lines, Image() + "/dirs/" + key);
}

void Keep(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return;
  const std::string key = MakeKey(fd, "", AT_EMPTY_PATH);
  if (S_ISDIR(info.st_mode)) KeepDirectory(fd, key);
  if (S_ISREG(info.st_mode)) KeepFile(fd, key);
}

bool IsBelowRoot(int fd) {
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  char path[4096];
  const ssize_t length = readlink(self.c_str(), path, sizeof(path) - 1);
  if (length < 0) return false;
  path[length] = '\0';
  const size_t root = std::strlen(Root());
  return std::strncmp(path, Root(), root) == 0 &&
         (path[root] == '/' || path[root] == '\0');
}

void KeepAllBelow(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) Die(path);
  Keep(fd);
  DIR* const directory = fdopendir(fd);
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const std::string child = path + "/" + name;
    if (entry->d_type == DT_DIR) {
      KeepAllBelow(child);
      continue;
    }
    const int file = open(child.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) Die(child);
    Keep(file);
    close(file);
  }
  closedir(directory);
}

__attribute__((constructor)) void Begin() {
  if (Root() == nullptr) return;
  mkdir((Image() + "/files").c_str(), 0777);
  mkdir((Image() + "/dirs").c_str(), 0777);
  Publish(MakeKey(AT_FDCWD, Root(), 0), Image() + "/root");
  KeepAllBelow(Root());
}

int Sync(int fd) {
  if (Root() == nullptr || !IsBelowRoot(fd)) return 0;
  std::lock_guard<std::mutex> lock(Lock());
  static long count = 0;  // Guarded by Lock().
  const char* const cut_at = std::getenv("ATOLL_DISK_CUT_AT");
  if (cut_at != nullptr && std::to_string(++count) == cut_at) {
    kill(getpid(), SIGKILL);
  }
  // A disk that lies: a control that the test must detect.
  if (std::getenv("ATOLL_DISK_LIES") == nullptr) Keep(fd);
  return 0;
}

}  // namespace

extern "C" int fsync(int fd) { return Sync(fd); }
extern "C" int fdatasync(int fd) { return Sync(fd); }
