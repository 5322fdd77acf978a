#include "worker/island/outbox.h"

#include <memory>

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

Outbox::Item Make(Outbox& outbox, int32_t fragment, int64_t seq) {
  std::shared_ptr<EncodedContribution> item = outbox.MakeItem();
  item->info.mutable_key()->set_fragment(fragment);
  item->info.mutable_key()->set_seq(seq);
  item->bytes.assign(100, 'a');
  return item;
}

TEST(OutboxTest, FindsWhatIsThereByFragmentAndSeq) {
  Outbox outbox;
  const Outbox::Item first = Make(outbox, 0, 7);
  const Outbox::Item second = Make(outbox, 1, 8);
  outbox.Set({first, second});
  EXPECT_EQ(outbox.Find(1, 8), second);
  EXPECT_EQ(outbox.Find(1, 7), nullptr);
  outbox.Set({second});
  EXPECT_EQ(outbox.Find(0, 7), nullptr);
  EXPECT_EQ(outbox.Find(1, 8), second);
}

TEST(OutboxTest, AnItemIsNewUntilItsFirstPushUnlessALifeBeforeHadIt) {
  Outbox outbox;
  const Outbox::Item saved = Make(outbox, 0, 6);
  outbox.Set({saved}, /*pushed=*/true);
  const Outbox::Item first = Make(outbox, 0, 7);
  const Outbox::Item second = Make(outbox, 1, 7);
  outbox.Set({saved, first, second});
  EXPECT_FALSE(outbox.TakeNew(saved));
  EXPECT_TRUE(outbox.TakeNew(first));
  outbox.Set({first, second});
  EXPECT_FALSE(outbox.TakeNew(first));
  EXPECT_TRUE(outbox.TakeNew(second));
  EXPECT_FALSE(outbox.TakeNew(second));
}

TEST(OutboxTest, ReusesTheMemoryOfWhatIsGoneAndNotBeingPushed) {
  Outbox outbox;
  Outbox::Item pushed = Make(outbox, 0, 1);
  const char* memory = pushed->bytes.data();
  outbox.Set({pushed});
  outbox.Set({Make(outbox, 0, 2)});
  // `pushed` is still in use: its bytes stay.
  EXPECT_NE(outbox.MakeItem()->bytes.capacity(), 100);
  EXPECT_EQ(pushed->bytes.data(), memory);
  EXPECT_EQ(pushed->bytes[99], 'a');
  pushed.reset();
  const std::shared_ptr<EncodedContribution> made = outbox.MakeItem();
  EXPECT_TRUE(made->bytes.empty());
  made->bytes.resize(100);
  EXPECT_EQ(made->bytes.data(), memory);
}

}  // namespace
}  // namespace atl::worker
