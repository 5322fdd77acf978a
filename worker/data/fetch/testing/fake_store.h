// Objects in memory behind faults that a test sets. Thread-safe: all stores
// that Open gives share one FakeSource.

#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/object_store/object_store.h"
#include "base/sync/mutex.h"

namespace atl::worker {

class FakeSource {
 public:
  // What one Read does instead of succeeding.
  struct Fault {
    absl::Status status;        // Its result, after `sent_bytes`.
    int64_t sent_bytes = 0;     // Bytes that it passes on first.
    bool flips_a_byte = false;  // The first byte is wrong.
  };
  struct Call {
    std::string name;
    int64_t offset = 0;
  };

  void Put(const std::string& name, const std::string& bytes) {
    MutexLock lock(&mutex_);
    objects_[name] = bytes;
  }
  // The next reads meet these faults, in this order.
  void AddFault(Fault fault) {
    MutexLock lock(&mutex_);
    faults_.push_back(std::move(fault));
  }
  // Called by every read between its pieces of `piece_bytes`, without a lock.
  void SetOnPiece(std::function<void(const std::string& name)> on_piece) {
    MutexLock lock(&mutex_);
    on_piece_ = std::move(on_piece);
  }
  std::vector<Call> calls() const {
    MutexLock lock(&mutex_);
    return calls_;
  }

  std::unique_ptr<ObjectStore> Open();

 private:
  class Store;
  static constexpr size_t kPieceBytes = 16;

  mutable Mutex mutex_;
  std::map<std::string, std::string> objects_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const std::string&)> on_piece_ ABSL_GUARDED_BY(mutex_);
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
};

class FakeSource::Store : public ObjectStore {
 public:
  explicit Store(FakeSource& source) : source_(source) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view,
                                               int64_t) override {
    return absl::UnimplementedError("List");
  }
  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    MutexLock lock(&source_.mutex_);
    const auto found = source_.objects_.find(std::string(name));
    if (found == source_.objects_.end()) return absl::NotFoundError(name);
    return ObjectInfo{std::string(name),
                      static_cast<int64_t>(found->second.size()), ""};
  }
  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    std::string bytes;
    Fault fault;
    std::function<void(const std::string&)> on_piece;
    {
      MutexLock lock(&source_.mutex_);
      source_.calls_.push_back({std::string(name), range.offset});
      const auto found = source_.objects_.find(std::string(name));
      if (found == source_.objects_.end()) {
        return absl::NotFoundError(GetUrl(name));
      }
      const absl::StatusOr<int64_t> end = GetRangeEnd(
          range, static_cast<int64_t>(found->second.size()), GetUrl(name));
      if (!end.ok()) return end.status();
      bytes = found->second.substr(range.offset, *end - range.offset);
      if (!source_.faults_.empty()) {
        fault = std::move(source_.faults_.front());
        source_.faults_.pop_front();
        if (!fault.status.ok()) bytes.resize(fault.sent_bytes);
        if (fault.flips_a_byte) bytes[0] ^= 1;
      }
      on_piece = source_.on_piece_;
    }
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      if (on_piece) on_piece(std::string(name));
      const absl::Status taken =
          sink(absl::string_view(bytes).substr(at, kPieceBytes));
      if (!taken.ok()) return taken;
    }
    return fault.status;
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(absl::string_view,
                                                      WriteMode) override {
    return absl::UnimplementedError("Write");
  }
  std::string GetUrl(absl::string_view name) const override {
    return absl::StrCat("s3://fake/", name);
  }

 private:
  FakeSource& source_;
};

inline std::unique_ptr<ObjectStore> FakeSource::Open() {
  return std::make_unique<Store>(*this);
}

}  // namespace atl::worker
