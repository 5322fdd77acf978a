#include "worker/engine/parallel/zero/moment_store.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <iostream>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/ops/testing/fake_device_ops.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine {
namespace {

// Fails from the `good_count`-th access on.
class FailingStore final : public BackingStore {
 public:
  FailingStore(std::unique_ptr<BackingStore> inner, int good_count)
      : inner_(std::move(inner)), good_count_(good_count) {}
  absl::Status Read(int64_t offset, void* data, int64_t count) override {
    if (good_count_-- <= 0) return absl::DataLossError("no such sector");
    return inner_->Read(offset, data, count);
  }
  absl::Status Write(int64_t offset, const void* data, int64_t count) override {
    if (good_count_-- <= 0) return absl::DataLossError("no such sector");
    return inner_->Write(offset, data, count);
  }

 private:
  const std::unique_ptr<BackingStore> inner_;
  int good_count_;
};

void Touch(const MomentStore<float>::Chunk& chunk) {
  for (int64_t i = 0; i < chunk.count; ++i) {
    const float at = static_cast<float>(chunk.begin + i);
    chunk.first[i] = chunk.first[i] * 0.5f + at;
    chunk.second[i] += chunk.first[i];
  }
}

TEST(MomentStoreTest, OffloadedIsWhatIsInMemory) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  PlainOps<float> ops;
  for (int round = 0; round < 20; ++round) {
    const int64_t count = 1 + random() % 500;
    const int64_t chunk = 1 + random() % 120;
    const int64_t bytes = 2 * count * static_cast<int64_t>(sizeof(float));
    auto expected = *MakeMomentStore<float>(count, ops);
    std::vector<std::unique_ptr<MomentStore<float>>> stores;
    stores.push_back(*MakeOffloadedMomentStore<float>(
        count, chunk, *MakeMemoryStore(bytes), ops));
    stores.push_back(*MakeOffloadedMomentStore<float>(
        count, chunk, *MakeFileStore(testing::TempDir(), bytes), ops));
    const int64_t begin = random() % count;
    const int64_t length = 1 + random() % (count - begin);
    std::vector<float> loaded(length);
    for (float& value : loaded) value = static_cast<float>(random() % 100);
    const auto use = [&](MomentStore<float>& store) {
      EXPECT_TRUE(store.Update(Touch).ok());
      EXPECT_TRUE(store.Write(1, begin, loaded).ok());
      EXPECT_TRUE(store.Update(Touch).ok());
      std::vector<float> all(2 * count);
      EXPECT_TRUE(store.Read(0, 0, absl::MakeSpan(all).subspan(0, count)).ok());
      EXPECT_TRUE(store.Read(1, 0, absl::MakeSpan(all).subspan(count)).ok());
      return all;
    };
    const std::vector<float> all = use(*expected);
    for (auto& store : stores) EXPECT_EQ(use(*store), all);
  }
}

TEST(MomentStoreTest, WithADeviceItIsTheSame) {
  constexpr int64_t kCount = 57, kChunk = 9;
  PlainOps<float> plain;
  FakeDeviceOps<float> apart;
  const auto use = [&](MomentStore<float>& store, Ops& ops) {
    // v = v + m / 2, m = 2 m, on memory of the operations.
    const auto update = [&](const MomentStore<float>::Chunk& chunk) {
      ops.Axpy(chunk.count, 0.5f, chunk.first, chunk.second);
      ops.Axpy(chunk.count, 1.0f, chunk.first, chunk.first);
    };
    std::vector<float> values(kCount);
    for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
    EXPECT_TRUE(store.Write(0, 0, values).ok());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(store.Update(update).ok());
    std::vector<float> all(2 * kCount);
    EXPECT_TRUE(store.Read(0, 0, absl::MakeSpan(all).subspan(0, kCount)).ok());
    EXPECT_TRUE(store.Read(1, 0, absl::MakeSpan(all).subspan(kCount)).ok());
    return all;
  };
  const auto expected = use(**MakeMomentStore<float>(kCount, plain), plain);
  EXPECT_EQ(use(**MakeMomentStore<float>(kCount, apart), apart), expected);
  auto offloaded = *MakeOffloadedMomentStore<float>(
      kCount, kChunk, *MakeMemoryStore(2 * 4 * kCount), apart);
  EXPECT_EQ(use(*offloaded, apart), expected);
}

TEST(MomentStoreTest, TakesMemoryOfThreeChunks) {
  PlainOps<float> ops;
  auto store = *MakeOffloadedMomentStore<float>(1 << 20, 1 << 10,
                                                *MakeMemoryStore(8 << 20), ops);
  EXPECT_EQ(store->memory_bytes(), 3 * 2 * 4 * (1 << 10));
}

TEST(MomentStoreTest, ADiskThatFailsIsAnErrorWhereverItFails) {
  PlainOps<float> ops;
  for (int good = 0; good < 16; ++good) {
    auto store = *MakeOffloadedMomentStore<float>(
        40, 10,
        std::make_unique<FailingStore>(*MakeMemoryStore(2 * 40 * 4), good),
        ops);
    EXPECT_EQ(store->Update(Touch).code(), absl::StatusCode::kDataLoss) << good;
  }
}

// Lets one thread wait until another has begun a chunk.
class Begun {
 public:
  explicit Begun(int count) : promises_(count) {}
  void Say(int64_t chunk) { promises_[chunk].set_value(); }
  // False after a timeout, now or earlier. Only a bug reaches the timeout.
  bool Await(int64_t chunk) {
    is_late_ =
        is_late_ || promises_[chunk].get_future().wait_for(
                        std::chrono::seconds(20)) != std::future_status::ready;
    return !is_late_;
  }

 private:
  std::vector<std::promise<void>> promises_;
  bool is_late_ = false;
};

constexpr int kOrderedChunks = 7;
constexpr int64_t kOrderedElements = 10;  // Per chunk.

// Tells when a chunk's m is read. Delays its write until the next chunk is
// being computed, like a slow disk.
class OrderedStore final : public BackingStore {
 public:
  OrderedStore(Begun& reads, Begun& computes, int& late_count)
      : reads_(reads), computes_(computes), late_count_(late_count) {}
  absl::Status Read(int64_t offset, void* data, int64_t count) override {
    const int64_t chunk = FindChunk(offset);
    if (chunk < kOrderedChunks) reads_.Say(chunk);
    return inner_->Read(offset, data, count);
  }
  absl::Status Write(int64_t offset, const void* data, int64_t count) override {
    const int64_t next = FindChunk(offset) + 1;
    if (next < kOrderedChunks && !computes_.Await(next)) ++late_count_;
    return inner_->Write(offset, data, count);
  }

 private:
  static int64_t FindChunk(int64_t offset) {
    return offset / (kOrderedElements * static_cast<int64_t>(sizeof(float)));
  }
  const std::unique_ptr<BackingStore> inner_ =
      *MakeMemoryStore(2 * kOrderedChunks * kOrderedElements * sizeof(float));
  Begun& reads_;
  Begun& computes_;
  int& late_count_;
};

// Reads, computation and writes of three chunks overlap.
TEST(MomentStoreTest, ReadsAheadAndWritesBehind) {
  PlainOps<float> ops;
  Begun reads(kOrderedChunks), computes(kOrderedChunks);
  int late_count = 0;
  auto store = *MakeOffloadedMomentStore<float>(
      kOrderedChunks * kOrderedElements, kOrderedElements,
      std::make_unique<OrderedStore>(reads, computes, late_count), ops);
  const auto update = [&](const MomentStore<float>::Chunk& chunk) {
    const int64_t i = chunk.begin / kOrderedElements;
    computes.Say(i);
    if (i + 1 < kOrderedChunks) {
      EXPECT_TRUE(reads.Await(i + 1))
          << "chunk " << i + 1 << " is not read while " << i << " is computed";
    }
    Touch(chunk);
  };
  EXPECT_TRUE(store->Update(update).ok());
  EXPECT_EQ(late_count, 0) << "chunks that are waited for until written";
}

TEST(MomentStoreTest, NoFileWhereThereIsNoDirectory) {
  EXPECT_EQ(MakeFileStore("/nowhere/at/all", 8).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::engine
