#include "coordinator/service/encoded_items.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.pb.h"
#include "base/rpc/chunk_codec.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// `count` runs, each of a little more than `bytes`.
v1::ListRunsResponse MakeRunList(int count, size_t bytes) {
  v1::ListRunsResponse list;
  for (int i = 0; i < count; ++i) {
    v1::Run& run = *list.add_runs();
    run.set_run_id(absl::StrCat("run-", i));
    run.set_state_reason(std::string(bytes, static_cast<char>('a' + i % 26)));
  }
  list.set_next_page_token("rest");
  return list;
}

EncodedItems EncodeRunList(const v1::ListRunsResponse& list) {
  return EncodedItems(list, list.runs(),
                      [](const v1::Run& run) { return run.run_id(); });
}

v1::ListRunsResponse DecodeRunList(const std::vector<grpc::Slice>& parts) {
  v1::ListRunsResponse list;
  EXPECT_TRUE(rpc::DecodeMessage(grpc::ByteBuffer(parts.data(), parts.size()),
                                 &list));
  return list;
}

TEST(EncodedItemsTest, EveryPartIsThatOfTheWholeWhereverABlockEnds) {
  // Items end before, at and after the ends of blocks.
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{65'520},
                             size_t{65'521}, size_t{65'522}, size_t{200'000}}) {
    const v1::ListRunsResponse list = MakeRunList(7, bytes);
    const EncodedItems items = EncodeRunList(list);
    ASSERT_EQ(items.names().size(), 7u);
    v1::ListRunsResponse whole;
    ASSERT_TRUE(rpc::DecodeMessage(items.Whole(), &whole));
    EXPECT_EQ(whole.SerializeAsString(), list.SerializeAsString());
    for (size_t begin = 0; begin <= 7; ++begin) {
      for (size_t end = begin; end <= 7; ++end) {
        std::vector<grpc::Slice> parts;
        items.Add(begin, end, parts);
        const v1::ListRunsResponse page = DecodeRunList(parts);
        ASSERT_EQ(page.runs_size(), end - begin);
        for (size_t i = begin; i < end; ++i) {
          EXPECT_EQ(page.runs(i - begin).SerializeAsString(),
                    list.runs(i).SerializeAsString());
        }
      }
    }
    std::vector<grpc::Slice> parts;
    items.AddRest(parts);
    EXPECT_EQ(DecodeRunList(parts).next_page_token(), "rest");
  }
  EXPECT_EQ(EncodedItems(v1::ListRunsResponse()).Whole().Length(), 0u);
}

TEST(EncodedItemsTest, APageKeepsOnlyItsOwnBlocks) {
  auto items = std::make_unique<EncodedItems>(
      EncodeRunList(MakeRunList(40, EncodedItems::kBlockBytes / 4)));
  const auto blocks = items->blocks();
  ASSERT_GE(blocks.size(), 10u);
  std::vector<grpc::Slice> page;
  items->Add(0, 1, page);
  items.reset();
  EXPECT_FALSE(blocks.front().expired());
  for (size_t i = 1; i < blocks.size(); ++i) {
    EXPECT_TRUE(blocks[i].expired()) << i;
  }
  page.clear();
  EXPECT_TRUE(blocks.front().expired());
}

TEST(EncodedItemsTest, APageEndsBeforeItIsTooLarge) {
  constexpr size_t kHalf = EncodedItems::kPageBytesMax / 2;
  EXPECT_EQ(EncodeRunList(MakeRunList(100, 1000)).CountFitting(0), 100u);
  EXPECT_EQ(EncodeRunList(MakeRunList(100, 1000)).CountFitting(98), 2u);
  EXPECT_EQ(EncodeRunList(MakeRunList(3, kHalf - 100)).CountFitting(0), 2u);
  EXPECT_EQ(EncodeRunList(MakeRunList(3, kHalf)).CountFitting(1), 1u);
  EXPECT_EQ(EncodeRunList(MakeRunList(3, 3 * kHalf)).CountFitting(0), 1u)
      << "one that is larger by itself is sent";
}

}  // namespace
}  // namespace atl::coordinator
