#include "base/rpc/small_frames.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/unique_fd.h"
#include "base/net/socket.h"
#include "base/rpc/listener.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr absl::string_view kReads =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr absl::string_view kReadsOne = "/grpc.health.v1.Health/Watch";

// HTTP/2 (RFC 9113) by hand: one call on one connection.
class Peer {
 public:
  enum Kind { kData = 0, kHeaders = 1, kSettings = 4, kPing = 6, kUpdate = 8 };

  Peer(const RpcServer& server, absl::string_view path)
      : fd_(net::Dial({"127.0.0.1", server.port()}, Limits()).value()) {
    out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    Add(kSettings, 0, 0, "");
    const std::pair<absl::string_view, absl::string_view> headers[] = {
        {":method", "POST"},     {":scheme", "http"}, {":path", path},
        {":authority", "test"},  {"te", "trailers"},
        {"content-type", "application/grpc"}};
    std::string block;
    for (const auto& [name, value] : headers) {
      block += '\0';  // A literal, with a literal name.
      for (const absl::string_view part : {name, value}) {
        block += static_cast<char>(part.size());
        block += std::string(part);
      }
    }
    Add(kHeaders, 4, 1, block);
  }

  // The five bytes that begin a message of `bytes`, in a frame.
  void BeginMessage(uint32_t bytes) { AddData('\0' + Big(bytes)); }

  // `count` frames of `bytes` each.
  void AddFrames(int count, size_t bytes) {
    for (int i = 0; i < count && is_open_; ++i) AddData(std::string(bytes, 'x'));
  }

  // Sends all, and waits for the answer to a ping. False: the connection ended.
  bool IsOpen() {
    Add(kPing, 0, 0, "12345678");
    ping_is_answered_ = false;
    while (is_open_ && (!out_.empty() || !ping_is_answered_)) Exchange();
    return is_open_;
  }

 private:
  static net::WaitLimits Limits() { return {SystemClock().Now() + kPatience}; }

  static std::string Big(uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(value >> shift);
    }
    return bytes;
  }
  static uint32_t FromBig(absl::string_view bytes) {
    uint32_t value = 0;
    for (const char byte : bytes) {
      value = value << 8 | static_cast<uint8_t>(byte);
    }
    return value;
  }

  void Add(Kind kind, char flags, uint32_t stream, const std::string& payload) {
    out_ += Big(static_cast<uint32_t>(payload.size())).substr(1);
    out_ += static_cast<char>(kind);
    out_ += flags;
    out_ += Big(stream) + payload;
  }

  void AddData(const std::string& payload) {
    const auto bytes = static_cast<int64_t>(payload.size());
    while (is_open_ && (window_ < bytes || call_window_ < bytes)) Exchange();
    window_ -= bytes;
    call_window_ -= bytes;
    Add(kData, 0, 1, payload);
  }

  // Sends and receives what is possible, something at least.
  void Exchange() {
    const short events = out_.empty() ? POLLIN : POLLIN | POLLOUT;
    if (!net::WaitForSocket(fd_.get(), events, Limits()).ok()) {
      ADD_FAILURE() << "nothing comes";
      is_open_ = false;
    }
    if (!out_.empty()) {
      const ssize_t sent =
          send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
      if (sent > 0) out_.erase(0, static_cast<size_t>(sent));
      if (sent < 0 && !net::WouldBlock(errno)) is_open_ = false;
    }
    char bytes[4096];
    const ssize_t count = recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (count == 0 || (count < 0 && !net::WouldBlock(errno))) is_open_ = false;
    if (count > 0) in_.append(bytes, static_cast<size_t>(count));
    while (in_.size() >= 9) {
      const size_t length = FromBig(absl::string_view(in_).substr(0, 3));
      if (in_.size() < 9 + length) return;
      Take(in_[3], FromBig(absl::string_view(in_).substr(5, 4)),
           absl::string_view(in_).substr(9, length));
      in_.erase(0, 9 + length);
    }
  }

  void Take(int kind, uint32_t stream, absl::string_view payload) {
    if (kind == kPing && payload == "12345678") ping_is_answered_ = true;
    if (kind != kUpdate) return;
    (stream == 0 ? window_ : call_window_) += FromBig(payload);
  }

  const UniqueFd fd_;
  bool is_open_ = true;
  bool ping_is_answered_ = false;
  std::string in_, out_;
  // Bytes that the peer still takes, on the connection and on the call.
  int64_t window_ = 65535, call_window_ = 65535;
};

class SmallFramesTest : public ::testing::Test {
 protected:
  const std::unique_ptr<RpcServer> server_ = RpcServer::Start({}).value();
};

TEST_F(SmallFramesTest, AMessageInFramesOfAByteEndsItsConnection) {
  Peer other(*server_, kReads), peer(*server_, kReads);
  peer.BeginMessage(1 << 20);
  peer.AddFrames(kSlicesFree - 1, 1);
  EXPECT_TRUE(peer.IsOpen());
  peer.AddFrames(1, 1);
  EXPECT_FALSE(peer.IsOpen());
  EXPECT_TRUE(other.IsOpen());
}

TEST_F(SmallFramesTest, BytesThatNoHandlerReadsCountToo) {
  Peer peer(*server_, kReadsOne);
  peer.BeginMessage(0);
  // Messages of no bytes, one after another.
  for (size_t i = 0; i < 2 * kSlicesFree; ++i) peer.BeginMessage(0);
  EXPECT_FALSE(peer.IsOpen());
}

TEST_F(SmallFramesTest, ManyFramesOfANetworksSizeAreFine) {
  Peer peer(*server_, kReads);
  const int count = 4 * kSlicesFree;
  peer.BeginMessage(4 * count * kSliceBytesMin);
  // A frame that two reads bring makes two slices.
  peer.AddFrames(count, 2 * kSliceBytesMin);
  EXPECT_TRUE(peer.IsOpen());
  // But they do not excuse all that follow.
  peer.AddFrames(2 * count, 1);
  EXPECT_FALSE(peer.IsOpen());
}

TEST(HasSmallSlicesTest, CountsTheSlicesAndTheirAverage) {
  grpc_slice_buffer unread = {};
  EXPECT_FALSE(HasSmallSlices(unread));
  unread.count = kSlicesFree;
  unread.length = kSlicesFree;
  EXPECT_FALSE(HasSmallSlices(unread));
  ++unread.count;
  EXPECT_TRUE(HasSmallSlices(unread));
  unread.length = unread.count * kSliceBytesMin;
  EXPECT_FALSE(HasSmallSlices(unread));
  --unread.length;
  EXPECT_TRUE(HasSmallSlices(unread));
}

}  // namespace
}  // namespace atl::rpc
