#include "base/net/packet_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace atl::net {
namespace {

class PacketListenerTest : public testing::Test {
 protected:
  PacketListenerTest() {
    char folder[] = "/tmp/atoll-socket-XXXXXX";  // A socket's path is short.
    folder_ = ::mkdtemp(folder);
    path_ = folder_ + "/s";
  }
  ~PacketListenerTest() override { std::filesystem::remove_all(folder_); }

  // A socket of another program.
  UniqueFd Bind(int type) {
    UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
                     sizeof(address)),
              0);
    EXPECT_EQ(type == SOCK_DGRAM ? 0 : ::listen(fd.get(), 1), 0);
    return fd;
  }

  std::string folder_, path_;
};

TEST_F(PacketListenerTest, ReplacesOnlyASocketThatNobodyHas) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM}) {
    {
      const UniqueFd other = Bind(type);
      EXPECT_EQ(PacketListener::Listen(path_).status().code(),
                absl::StatusCode::kAlreadyExists)
          << type;
      EXPECT_TRUE(std::filesystem::is_socket(path_)) << type;
    }
    EXPECT_TRUE(PacketListener::Listen(path_).ok()) << type;
    EXPECT_FALSE(std::filesystem::exists(path_)) << type;
  }
}

TEST_F(PacketListenerTest, APathMayBeLongerThanASockets) {
  const std::string folder = folder_ + "/" + std::string(200, 'd');
  std::filesystem::create_directory(folder);
  path_ = folder + "/trainer.sock";
  EXPECT_EQ(PacketSocket::Connect(path_).status().code(),
            absl::StatusCode::kNotFound);
  for (int i = 0; i < 2; ++i) {
    auto listener = PacketListener::Listen(path_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_EQ(PacketListener::Listen(path_).status().code(),
              absl::StatusCode::kAlreadyExists);
    const auto socket = PacketSocket::Connect(path_);
    EXPECT_TRUE(socket.ok()) << socket.status();
    listener->reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_EQ(PacketListener::Listen(folder + "/" + std::string(120, 's'))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PacketListener::Listen("").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PacketListenerTest, LeavesASocketThatTookItsPath) {
  auto listener = PacketListener::Listen(path_);
  ASSERT_TRUE(listener.ok());
  std::filesystem::rename(path_, path_ + "1");
  const UniqueFd other = Bind(SOCK_STREAM);
  listener->reset();
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

}  // namespace
}  // namespace atl::net
