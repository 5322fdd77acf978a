#include "base/io/testing/fake_file_system.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

using Fault = FakeFileSystem::Fault;

// A disk writes a page of this size at once.
constexpr size_t kPageBytes = 4096;

// The verb that starts the messages of PosixFileSystem.
absl::string_view ToVerb(Fault::Call call) {
  switch (call) {
    case Fault::Call::kOpen:
      return "open";
    case Fault::Call::kRead:
      return "read";
    case Fault::Call::kWrite:
      return "write";
    case Fault::Call::kSync:
      return "sync";
    case Fault::Call::kReserve:
      return "reserve";
    case Fault::Call::kRename:
      return "rename";
    case Fault::Call::kRemove:
      return "remove";
    case Fault::Call::kSyncDirectory:
      return "sync directory";
    case Fault::Call::kList:
      return "list";
  }
  return "call";
}

}  // namespace

// A file's bytes, now and as of its last sync.
struct FakeFileSystem::Node {
  std::string bytes;
  std::string synced_bytes;
  // Ranges, as begin and end, that the next sync makes durable.
  std::vector<std::pair<size_t, size_t>> unsynced;

  void Sync() {
    synced_bytes.resize(bytes.size());
    for (const auto& [begin, end] : unsynced) {
      synced_bytes.replace(begin, end - begin, bytes, begin, end - begin);
    }
    unsynced.clear();
  }

  // The disk has `durable` after a crash.
  void Restart(std::string durable) {
    synced_bytes = std::move(durable);
    bytes = synced_bytes;
    unsynced.clear();
  }

  // Returns bytes that the disk may have if it was writing: see
  // CrashInMidWrite.
  std::string MixPages(std::mt19937_64& random) const {
    const size_t low = std::min(bytes.size(), synced_bytes.size());
    const size_t high = std::max(bytes.size(), synced_bytes.size());
    const size_t sizes[] = {bytes.size(), synced_bytes.size(),
                            low + random() % (high - low + 1)};
    std::string mixed = synced_bytes;
    mixed.resize(high);
    enum { kKept, kZeroed, kOld, kChoiceCount };
    std::map<size_t, int> choices;  // By page.
    for (const auto& [begin, end] : unsynced) {
      for (size_t at = begin; at < end;) {
        const size_t page = at / kPageBytes;
        const size_t stop = std::min(end, (page + 1) * kPageBytes);
        const auto [choice, is_new] = choices.try_emplace(page, 0);
        if (is_new) choice->second = static_cast<int>(random() % kChoiceCount);
        if (choice->second == kKept) {
          mixed.replace(at, stop - at, bytes, at, stop - at);
        } else if (choice->second == kZeroed) {
          mixed.replace(at, stop - at, stop - at, '\0');
        }
        at = stop;
      }
    }
    mixed.resize(sizes[random() % std::size(sizes)]);
    return mixed;
  }
};

struct FakeFileSystem::State {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Node>> names ABSL_GUARDED_BY(mutex);
  std::map<std::string, std::shared_ptr<Node>> synced_names
      ABSL_GUARDED_BY(mutex);
  std::set<std::string> directories ABSL_GUARDED_BY(mutex);
  int64_t capacity ABSL_GUARDED_BY(mutex) = std::numeric_limits<int64_t>::max();
  std::vector<Fault> faults ABSL_GUARDED_BY(mutex);

  // The outcome of a call. `written_bytes`: what a failing write still writes.
  absl::Status Check(Fault::Call call, const std::string& path,
                     int64_t* written_bytes = nullptr) {
    for (auto fault = faults.begin(); fault != faults.end(); ++fault) {
      if (fault->call != call || !absl::StrContains(path, fault->path_part)) {
        continue;
      }
      if (fault->pass_count > 0) {
        --fault->pass_count;
        continue;
      }
      if (written_bytes != nullptr) *written_bytes = fault->written_bytes;
      const absl::Status status = ErrnoToStatus(
          fault->error_number, absl::StrCat(ToVerb(call), " ", path));
      if (--fault->fail_count == 0) faults.erase(fault);
      return status;
    }
    return absl::OkStatus();
  }

  // Open handles of each open node.
  std::map<const Node*, int> open_counts ABSL_GUARDED_BY(mutex);

  int64_t UsedBytes(bool with_open = false) const {
    std::set<const Node*> nodes;
    for (const auto& [name, node] : names) nodes.insert(node.get());
    if (with_open) {
      for (const auto& [node, count] : open_counts) nodes.insert(node);
    }
    int64_t used = 0;
    for (const Node* node : nodes) used += node->bytes.size();
    return used;
  }

  // Makes `node` at least `size` bytes long.
  absl::Status Grow(Node& node, int64_t size, const std::string& path) {
    const int64_t more = size - static_cast<int64_t>(node.bytes.size());
    if (more <= 0) return absl::OkStatus();
    if (UsedBytes() > capacity - more) {
      return absl::ResourceExhaustedError(
          absl::StrCat("write ", path, ": the disk is full"));
    }
    node.bytes.resize(size);
    return absl::OkStatus();
  }
};

class FakeFileSystem::File : public RandomAccessFile {
 public:
  File(std::shared_ptr<State> state, std::shared_ptr<Node> node,
       std::string path, bool writable)
      : state_(std::move(state)),
        node_(std::move(node)),
        path_(std::move(path)),
        writable_(writable) {}
  ~File() override {
    MutexLock lock(&state_->mutex);
    if (--state_->open_counts[node_.get()] == 0) {
      state_->open_counts.erase(node_.get());
    }
  }

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<char> out) const override {
    MutexLock lock(&state_->mutex);
    RETURN_IF_ERROR(state_->Check(Fault::Call::kRead, path_));
    const int64_t left = static_cast<int64_t>(node_->bytes.size()) - offset;
    const int64_t count = std::clamp<int64_t>(left, 0, out.size());
    if (count > 0) {
      std::memcpy(out.data(), node_->bytes.data() + offset, count);
    }
    return count;
  }

  absl::Status WriteAt(int64_t offset,
                       absl::Span<const absl::string_view> pieces) override {
    MutexLock lock(&state_->mutex);
    if (!writable_) {
      return absl::PermissionDeniedError(
          absl::StrCat("write ", path_, ": opened for reading"));
    }
    int64_t room = 0;  // That a failing write may still use.
    const absl::Status failure =
        state_->Check(Fault::Call::kWrite, path_, &room);
    for (absl::string_view piece : pieces) {
      if (!failure.ok()) {
        piece = piece.substr(0, static_cast<size_t>(room));
        room -= static_cast<int64_t>(piece.size());
      }
      RETURN_IF_ERROR(state_->Grow(*node_, offset + piece.size(), path_));
      if (!piece.empty()) {
        std::memcpy(node_->bytes.data() + offset, piece.data(), piece.size());
        node_->unsynced.emplace_back(offset, offset + piece.size());
        offset += piece.size();
      }
    }
    return failure;
  }

  absl::Status Sync() override {
    MutexLock lock(&state_->mutex);
    const absl::Status status = state_->Check(Fault::Call::kSync, path_);
    if (status.ok()) {
      node_->Sync();
    } else {
      node_->unsynced.clear();
    }
    return status;
  }

  absl::Status Preallocate(int64_t size) override {
    MutexLock lock(&state_->mutex);
    RETURN_IF_ERROR(state_->Check(Fault::Call::kReserve, path_));
    return state_->Grow(*node_, size, path_);
  }

  absl::StatusOr<int64_t> Size() const override {
    MutexLock lock(&state_->mutex);
    return node_->bytes.size();
  }

 private:
  const std::shared_ptr<State> state_;
  const std::shared_ptr<Node> node_;
  const std::string path_;
  const bool writable_;
};

FakeFileSystem::FakeFileSystem() : state_(std::make_shared<State>()) {
  state_->directories = {"/", "."};
}
FakeFileSystem::~FakeFileSystem() = default;

void FakeFileSystem::Crash() {
  MutexLock lock(&state_->mutex);
  state_->names = state_->synced_names;
  for (auto& [name, node] : state_->names) node->Restart(node->synced_bytes);
}

void FakeFileSystem::CrashInMidWrite(uint64_t seed) {
  MutexLock lock(&state_->mutex);
  std::mt19937_64 random(seed);
  std::map<std::string, std::shared_ptr<Node>> kept;
  for (const std::string& directory : state_->directories) {
    for (const auto& [name, node] :
         random() % 2 == 0 ? state_->names : state_->synced_names) {
      if (ParentDirectory(name) == directory) kept[name] = node;
    }
  }
  state_->names = state_->synced_names = std::move(kept);
  std::set<const Node*> seen;  // A file may have two names.
  for (auto& [name, node] : state_->names) {
    if (seen.insert(node.get()).second) node->Restart(node->MixPages(random));
  }
}

void FakeFileSystem::SetCapacity(int64_t bytes) {
  MutexLock lock(&state_->mutex);
  state_->capacity = bytes;
}

void FakeFileSystem::AddFault(Fault fault) {
  MutexLock lock(&state_->mutex);
  state_->faults.push_back(std::move(fault));
}

void FakeFileSystem::ClearFaults() {
  MutexLock lock(&state_->mutex);
  state_->faults.clear();
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FakeFileSystem::Open(
    const std::string& path, bool create) {
  MutexLock lock(&state_->mutex);
  RETURN_IF_ERROR(state_->Check(Fault::Call::kOpen, path));
  const auto found = state_->names.find(path);
  std::shared_ptr<Node> node;
  if (found != state_->names.end()) {
    node = found->second;
  } else if (!create || state_->directories.count(ParentDirectory(path)) == 0) {
    return absl::NotFoundError(absl::StrCat("open ", path, ": not there"));
  } else {
    node = std::make_shared<Node>();
    state_->names[path] = node;
  }
  ++state_->open_counts[node.get()];
  return std::make_unique<File>(state_, node, path, create);
}

void FakeFileSystem::SetFull() {
  MutexLock lock(&state_->mutex);
  state_->capacity = state_->UsedBytes();
}

int64_t FakeFileSystem::HeldBytes() const {
  MutexLock lock(&state_->mutex);
  return state_->UsedBytes(/*with_open=*/true);
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FakeFileSystem::OpenForRead(
    const std::string& path) {
  return Open(path, false);
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FakeFileSystem::OpenForWrite(
    const std::string& path) {
  return Open(path, true);
}

absl::Status FakeFileSystem::Rename(const std::string& from,
                                    const std::string& to) {
  MutexLock lock(&state_->mutex);
  RETURN_IF_ERROR(state_->Check(Fault::Call::kRename, from));
  if (state_->directories.count(from) > 0) {
    // With everything in it, before a crash and after it.
    const std::string prefix = absl::StrCat(from, "/");
    const auto renamed = [&](const std::string& name) {
      return name == from || name.compare(0, prefix.size(), prefix) == 0
                 ? absl::StrCat(to, name.substr(from.size()))
                 : name;
    };
    for (auto* names : {&state_->names, &state_->synced_names}) {
      std::map<std::string, std::shared_ptr<Node>> moved;
      for (const auto& [name, node] : *names) moved[renamed(name)] = node;
      names->swap(moved);
    }
    std::set<std::string> directories;
    for (const std::string& name : state_->directories) {
      directories.insert(renamed(name));
    }
    state_->directories.swap(directories);
    return absl::OkStatus();
  }
  const auto found = state_->names.find(from);
  if (found == state_->names.end()) {
    return absl::NotFoundError(absl::StrCat("rename ", from, ": not there"));
  }
  const std::shared_ptr<Node> node = found->second;
  state_->names.erase(found);
  state_->names[to] = node;
  return absl::OkStatus();
}

absl::Status FakeFileSystem::Remove(const std::string& path) {
  MutexLock lock(&state_->mutex);
  RETURN_IF_ERROR(state_->Check(Fault::Call::kRemove, path));
  if (state_->names.erase(path) + state_->directories.erase(path) == 0) {
    return absl::NotFoundError(absl::StrCat("remove ", path, ": not there"));
  }
  return absl::OkStatus();
}

absl::Status FakeFileSystem::CreateDirectories(const std::string& path) {
  MutexLock lock(&state_->mutex);
  for (std::string at = path; state_->directories.insert(at).second;) {
    at = ParentDirectory(at);
  }
  return absl::OkStatus();
}

absl::Status FakeFileSystem::SyncDirectory(const std::string& path) {
  MutexLock lock(&state_->mutex);
  RETURN_IF_ERROR(state_->Check(Fault::Call::kSyncDirectory, path));
  std::map<std::string, std::shared_ptr<Node>>& synced = state_->synced_names;
  for (auto it = synced.begin(); it != synced.end();) {
    it = ParentDirectory(it->first) == path ? synced.erase(it) : std::next(it);
  }
  for (const auto& [name, node] : state_->names) {
    if (ParentDirectory(name) == path) synced[name] = node;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FakeFileSystem::List(
    const std::string& path) {
  MutexLock lock(&state_->mutex);
  RETURN_IF_ERROR(state_->Check(Fault::Call::kList, path));
  if (state_->directories.count(path) == 0) {
    return absl::NotFoundError(absl::StrCat("list ", path, ": not there"));
  }
  std::vector<std::string> names;
  auto add = [&](const std::string& name) {
    if (name != path && ParentDirectory(name) == path) {
      names.push_back(name.substr(name.rfind('/') + 1));
    }
  };
  for (const auto& [name, node] : state_->names) add(name);
  for (const std::string& name : state_->directories) add(name);
  std::sort(names.begin(), names.end());
  return names;
}

bool FakeFileSystem::Exists(const std::string& path) {
  MutexLock lock(&state_->mutex);
  return state_->names.count(path) > 0 || state_->directories.count(path) > 0;
}

}  // namespace atl
