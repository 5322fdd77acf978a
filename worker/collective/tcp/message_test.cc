#include "worker/collective/tcp/message.h"

#include <iostream>
#include <random>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::collective {
namespace {

Message Full() {
  Message message;
  message.type = MessageType::kRoster;
  message.code = 3;
  message.process_index = 1;
  message.process_count = 2;
  message.rank_count = 4;
  message.port = 50000;
  message.rank = 7;
  message.peer = 8;
  message.call_count = 1LL << 40;
  message.layout = "dp_shard=4,tp=2";
  message.group = "world/tp#0.1";
  message.text = std::string("a\0b", 3);
  message.processes = {{"127.0.0.1", 5, 2}, {"::1", 6, 3}};
  return message;
}

TEST(MessageTest, ComesBackAsItWasAlsoInPieces) {
  const std::string bytes = EncodeMessage(Full());
  std::string buffer;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    buffer.push_back(bytes[i]);
    auto none = TakeMessage(buffer);
    ASSERT_TRUE(none.ok() && !none->has_value()) << i;
  }
  buffer.push_back(bytes.back());
  buffer += "rest";
  auto message = TakeMessage(buffer);
  ASSERT_TRUE(message.ok() && message->has_value());
  EXPECT_EQ(EncodeMessage(**message), bytes);
  EXPECT_EQ((*message)->text, Full().text);
  EXPECT_EQ((*message)->processes[1].host, "::1");
  EXPECT_EQ(buffer, "rest");
}

TEST(MessageTest, WhatIsMalformedIsAnError) {
  std::string stranger = "GET / HTTP/1.1\r\n";
  EXPECT_EQ(TakeMessage(stranger).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string longer = EncodeMessage(Full());
  longer[6] = 0x7f;
  EXPECT_FALSE(TakeMessage(longer).ok());
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = EncodeMessage(Full());
    for (int k = 0; k < 3; ++k) {
      bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
    }
    (void)TakeMessage(bytes);  // An error or a message, never a crash.
  }
}

}  // namespace
}  // namespace atl::collective
