#include "worker/engine/device/device_spec.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl::engine {
namespace {

TEST(DeviceSpecTest, ReadsADeviceWithWhatIsOff) {
  const struct {
    const char* text;
    DeviceSpec spec;
  } cases[] = {
      {"", {}},
      {"cpu", {}},
      {"cuda", {.kind = DeviceKind::kCuda}},
      {"cuda:0", {.kind = DeviceKind::kCuda, .index = 0}},
      {"cuda:17", {.kind = DeviceKind::kCuda, .index = 17}},
      {"cuda,graphs=off", {.kind = DeviceKind::kCuda, .graphs = false}},
      {"cuda:1,graphs=off",
       {.kind = DeviceKind::kCuda, .index = 1, .graphs = false}},
      {"cuda,cudnn=off", {.kind = DeviceKind::kCuda, .cudnn = false}},
      {"cuda:2,graphs=off,cudnn=off",
       {.kind = DeviceKind::kCuda,
        .index = 2,
        .graphs = false,
        .cudnn = false}},
      {"cuda,cudnn=off,graphs=off",
       {.kind = DeviceKind::kCuda, .graphs = false, .cudnn = false}}};
  for (const auto& [text, expected] : cases) {
    const auto spec = ParseDeviceSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(*spec, expected) << text;
  }
}

TEST(DeviceSpecTest, RefusesTheRest) {
  for (const char* text :
       {"gpu", "CUDA", "cpu:0", "cuda:", "cuda:-1", "cuda: 1", "cuda:+1",
        "cuda:1x", "cuda:99999999999", "cuda0", " cpu", "cuda,graphs=on",
        "cpu,graphs=off", "cpu,cudnn=off", "cuda,cudnn=on",
        "cuda,cudnn=off,cudnn=off"}) {
    const auto status = ParseDeviceSpec(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
}

TEST(DeviceSpecTest, RanksTakeDevicesInTurn) {
  const DeviceSpec any = *ParseDeviceSpec("cuda");
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(*DeviceOfRank(any, rank, 4), rank % 4);
    EXPECT_EQ(*DeviceOfRank(any, rank, 1), 0);
    EXPECT_EQ(*DeviceOfRank(*ParseDeviceSpec("cuda:2"), rank, 4), 2);
  }
  EXPECT_EQ(DeviceOfRank(*ParseDeviceSpec("cuda:4"), 0, 4).status().message(),
            "there is no CUDA device 4: this machine has 4, and the last is 3");
}

}  // namespace
}  // namespace atl::engine
