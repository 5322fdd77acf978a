// The cluster object in the mirror follows the log.

#include "coordinator/service/mirror_thread.h"

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/mirror/cluster_object.h"
#include "base/mirror/mirror_names.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "coordinator/store/testing/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::SizeIs;
using storage::v1::ClusterObject;

// Counts the cluster objects that were looked up, written and collected, and can
// hold up or fail the next one. Thread-safe.
class Gatekeeper {
 public:
  void BeforeList() {
    MutexLock lock(&mutex_);
    ++listed_;
    changed_.SignalAll();
  }
  absl::Status BeforeWrite() {
    MutexLock lock(&mutex_);
    ++begun_;
    changed_.SignalAll();
    while (is_closed_) changed_.Wait(&mutex_);
    return std::exchange(failure_, absl::OkStatus());
  }
  void AfterCollection() {
    MutexLock lock(&mutex_);
    ++done_;
    changed_.SignalAll();
  }

  void SetClosed(bool is_closed) {
    MutexLock lock(&mutex_);
    is_closed_ = is_closed;
    changed_.SignalAll();
  }
  void FailOnce(absl::Status failure) {
    MutexLock lock(&mutex_);
    failure_ = std::move(failure);
  }
  void AwaitListed(int count) {
    MutexLock lock(&mutex_);
    while (listed_ < count) changed_.Wait(&mutex_);
  }
  void AwaitBegun(int count) {
    MutexLock lock(&mutex_);
    while (begun_ < count) changed_.Wait(&mutex_);
  }
  void AwaitDone(int count) {
    MutexLock lock(&mutex_);
    while (done_ < count) changed_.Wait(&mutex_);
  }
  int begun() {
    MutexLock lock(&mutex_);
    return begun_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int listed_ ABSL_GUARDED_BY(mutex_) = 0;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

// A directory whose cluster objects a Gatekeeper watches.
class WatchedStore : public ObjectStore {
 public:
  WatchedStore(const std::string& root, Gatekeeper& gatekeeper)
      : files_(MakeFileStore(root, PosixFileSystem())),
        gatekeeper_(gatekeeper) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t count_max) override {
    gatekeeper_.BeforeList();
    return files_->List(prefix, count_max);
  }
  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    return files_->Stat(name);
  }
  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    return files_->Read(name, range, sink);
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(
      absl::string_view name, WriteMode mode) override {
    if (absl::StartsWith(name, mirror::ClustersPrefix())) {
      const absl::Status status = gatekeeper_.BeforeWrite();
      if (!status.ok()) return status;
    }
    return files_->Write(name, mode);
  }
  absl::Status Remove(absl::string_view name) override {
    return files_->Remove(name);
  }
  // The last call of a collection.
  absl::Status RemoveUnfinished(absl::string_view prefix) override {
    const absl::Status status = files_->RemoveUnfinished(prefix);
    if (absl::StartsWith(prefix, mirror::ClustersPrefix())) {
      gatekeeper_.AfterCollection();
    }
    return status;
  }
  std::string GetUrl(absl::string_view name) const override {
    return files_->GetUrl(name);
  }

 private:
  const std::unique_ptr<ObjectStore> files_;
  Gatekeeper& gatekeeper_;
};

class MirrorThreadTest : public testing::Test {
 protected:
  MirrorThreadTest()
      : root_(JoinObjectName(testing::TempDir(), RandomId())),
        mirror_({.open =
                     [this](const Waiting&) {
                       return std::make_unique<WatchedStore>(root_,
                                                             gatekeeper_);
                     },
                 .retry_delay = absl::Milliseconds(1),
                 .cluster_period = absl::ZeroDuration()}) {
    EventLoop::Spec spec;
    spec.store = &store_;
    spec.clock = &SystemClock();
    spec.coordinator.has_mirror = true;
    spec.on_mirror_due = [this] { mirror_.Notify(); };
    loop_ = *EventLoop::Start(spec);
  }
  ~MirrorThreadTest() override {
    gatekeeper_.SetClosed(false);
    mirror_.Stop();
    loop_->Stop();
    std::filesystem::remove_all(root_);
  }

  template <typename Result>
  absl::StatusOr<Result> Call(
      std::function<absl::StatusOr<Result>(Coordinator&, absl::Time)> decide) {
    std::promise<absl::StatusOr<Result>> answer;
    loop_->Post<Result>(std::move(decide),
                        [&answer](absl::StatusOr<Result> result) {
                          answer.set_value(std::move(result));
                        });
    return answer.get_future().get();
  }

  void Register(const std::string& server_id) {
    const auto registered = Call<v1::RegisterServerResponse>(
        [&](Coordinator& coordinator, absl::Time now) {
          v1::RegisterServerRequest request;
          request.set_server_id(server_id);
          request.set_address("h:1");
          request.set_incarnation(1);
          return coordinator.RegisterServer(request, now);
        });
    ASSERT_TRUE(registered.ok()) << registered.status();
  }

  std::string ClusterId() {
    return *Call<std::string>([](Coordinator& coordinator, absl::Time now) {
      return coordinator.DescribeForMirror().cluster_id();
    });
  }

  // The newest object in the mirror.
  ClusterObject Newest() {
    const auto files = MakeFileStore(root_, PosixFileSystem());
    const auto found = mirror::ReadCluster(*files, ClusterId());
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->object : ClusterObject();
  }

  const std::string root_;
  Gatekeeper gatekeeper_;
  MemoryLogStore store_;
  MirrorThread mirror_;
  std::unique_ptr<EventLoop> loop_;
};

TEST_F(MirrorThreadTest, TheObjectIsWrittenAtTheStartAndAtEachChange) {
  mirror_.Start(*loop_);
  gatekeeper_.AwaitDone(1);
  EXPECT_THAT(Newest().servers(), SizeIs(0));
  EXPECT_TRUE(Newest().has_create_time());
  for (int i = 1; i <= 3; ++i) {
    Register(absl::StrCat("s", i));
    gatekeeper_.AwaitDone(1 + i);
    EXPECT_THAT(Newest().servers(), SizeIs(i));
  }
  const auto files = MakeFileStore(root_, PosixFileSystem());
  EXPECT_THAT(*files->List(mirror::ClustersPrefix(), 100), SizeIs(2));
}

TEST_F(MirrorThreadTest, WhatChangesMeanwhileIsWrittenOnce) {
  gatekeeper_.SetClosed(true);
  mirror_.Start(*loop_);
  gatekeeper_.AwaitBegun(1);
  for (int i = 1; i <= 5; ++i) Register(absl::StrCat("s", i));
  gatekeeper_.SetClosed(false);
  gatekeeper_.AwaitDone(2);
  EXPECT_THAT(Newest().servers(), SizeIs(5));
  EXPECT_EQ(gatekeeper_.begun(), 2);
}

TEST_F(MirrorThreadTest, AFailureIsRetried) {
  gatekeeper_.FailOnce(absl::UnavailableError("the bucket is away"));
  mirror_.Start(*loop_);
  gatekeeper_.AwaitDone(1);
  EXPECT_EQ(gatekeeper_.begun(), 2);
  EXPECT_THAT(Newest().starts(), SizeIs(1));
}

TEST_F(MirrorThreadTest, AnotherLogOfTheClusterIsLeftAlone) {
  ClusterObject other = *Call<ClusterObject>(
      [](Coordinator& coordinator, absl::Time now) {
        return coordinator.DescribeForMirror();
      });
  other.mutable_starts(0)->set_start_id("other");
  const auto files = MakeFileStore(root_, PosixFileSystem());
  ASSERT_TRUE(mirror::WriteCluster(*files, other).ok());
  mirror_.Start(*loop_);
  Register("s0");
  gatekeeper_.AwaitListed(2);  // The second attempt.
  mirror_.Stop();
  EXPECT_EQ(gatekeeper_.begun(), 0);
  EXPECT_THAT(*files->List(mirror::ClustersPrefix(), 100), SizeIs(1));
  EXPECT_EQ(Newest().starts(0).start_id(), "other");
}

}  // namespace
}  // namespace atl::coordinator
