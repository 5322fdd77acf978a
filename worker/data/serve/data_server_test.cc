#include "worker/data/serve/data_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/unique_fd.h"
#include "base/net/socket.h"
#include "base/object_store/open_object_store.h"
#include "base/random_id/random_id.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/data_token.h"
#include "base/rpc/testing/test_certificates.h"
#include "base/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/serve/testing/published_directory.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class DataServerTest : public ::testing::Test {
 protected:
  DataServerTest() {
    std::filesystem::create_directories(directory_);
    authority_ = std::make_unique<rpc::TestAuthority>(directory_);
    tls_ = authority_->Issue("atoll:data:d");
    options_.directory = published_.path();
    options_.listen = {"127.0.0.1", 0};
    options_.cert_path = tls_.cert;
    options_.key_path = tls_.key;
    options_.access.island_ca_pem = island_ca_.cert_pem;
    token_ = Token("r1");
  }

  std::string Token(const std::string& run_uid) const {
    return *rpc::SignDataToken(
        {"c1", run_uid, Role::kIsland, "attic", absl::Now() + absl::Hours(1)},
        island_ca_.key_pem);
  }

  void Start() {
    auto started = DataServer::Start(options_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  std::unique_ptr<ObjectStore> Open() const {
    ObjectStoreOptions options;
    options.ca_pem = *ReadFile(PosixFileSystem(), tls_.ca);
    options.bearer_token = [this] { return token_; };
    options.retry_budget = {.attempt_count_max = 1};
    return *OpenObjectStore(
        absl::StrCat("https://127.0.0.1:", server_->address().port), options);
  }

  absl::StatusOr<std::string> Read(ObjectStore& store, const std::string& name,
                                   const ReadRange& range = {}) const {
    std::string text;
    const absl::Status status =
        store.Read(name, range, [&text](absl::string_view bytes) {
          absl::StrAppend(&text, bytes);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return text;
  }

  const std::string directory_ =
      absl::StrCat(::testing::TempDir(), "/", RandomId());
  const std::string deep_ = std::string(3 << 20, 'd');
  const PublishedDirectory published_{deep_};
  const rpc::KeyAndCertificate island_ca_ =
      *rpc::MakeAuthority("islands", absl::Now(), absl::Now() + absl::Hours(1));
  std::unique_ptr<rpc::TestAuthority> authority_;
  rpc::TlsFiles tls_;
  DataServerOptions options_;
  std::string token_;
  std::unique_ptr<DataServer> server_;
};

TEST_F(DataServerTest, AnIslandReadsWithItsToken) {
  Start();
  const auto store = Open();
  EXPECT_EQ(*Read(*store, "a.bin"), "abcd");
  EXPECT_EQ(*Read(*store, "deep/b.bin"), deep_);
  EXPECT_EQ(*Read(*store, "deep/b.bin", {5, 70000}), deep_.substr(5, 70000));
  EXPECT_EQ(*Read(*store, "manifest.json"), published_.Read("manifest.json"));
  EXPECT_EQ(store->Stat("a.bin")->size_bytes, 4);
  EXPECT_EQ(Read(*store, "b.bin").status().code(), Code::kNotFound);
  const DataServer::Counts counts = server_->counts();
  EXPECT_EQ(counts.request_count, 5);
  EXPECT_EQ(counts.refused_count, 2);  // The first, without a token, and b.bin.
  EXPECT_GT(counts.sent_bytes, 3 << 20);
}

TEST_F(DataServerTest, RefusalsSayWhatToDo) {
  options_.access.run_uids = {"r2"};
  Start();
  absl::Status status = Read(*Open(), "a.bin").status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("run r1"));
  token_ = "";
  status = Read(*Open(), "a.bin").status();
  EXPECT_EQ(status.code(), Code::kUnauthenticated) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("atoll join"));
  // A renewed token needs no new store.
  const auto store = Open();
  EXPECT_FALSE(Read(*store, "a.bin").ok());
  token_ = Token("r2");
  EXPECT_EQ(*Read(*store, "a.bin"), "abcd");
}

TEST_F(DataServerTest, ANewCertificateIsTakenWithoutARestart) {
  options_.watch_period = absl::Milliseconds(10);
  Start();
  EXPECT_EQ(*Read(*Open(), "a.bin"), "abcd");
  const std::string other = directory_ + "/other";
  std::filesystem::create_directories(other);
  rpc::TestAuthority other_authority(other);
  const rpc::TlsFiles next = other_authority.Issue("atoll:data:d");
  // Its CA is new too: only the new certificate passes.
  std::filesystem::rename(next.ca, tls_.ca);
  rpc::ReplaceTlsFiles(next, tls_);
  const absl::Time deadline = SystemClock().Now() + absl::Seconds(60);
  absl::StatusOr<std::string> read = Read(*Open(), "a.bin");
  while (!read.ok() && SystemClock().Now() < deadline) {
    read = Read(*Open(), "a.bin");
  }
  EXPECT_TRUE(read.ok()) << read.status();
}

TEST_F(DataServerTest, AConnectionThatMovesNothingIsClosed) {
  options_.watch_period = absl::Milliseconds(10);
  options_.stall_timeout = absl::Milliseconds(100);
  Start();
  const net::WaitLimits limits = {SystemClock().Now() + absl::Seconds(60)};
  const auto idle = net::Dial(server_->address(), limits);
  ASSERT_TRUE(idle.ok()) << idle.status();
  // Else it has no time at all.
  EXPECT_EQ(::send(idle->get(), "\x16", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(net::WaitForSocket(idle->get(), POLLIN, limits).ok());
  char byte;
  EXPECT_LE(::recv(idle->get(), &byte, 1, 0), 0);
}

TEST_F(DataServerTest, StrangersKeepNoIslandOut) {
  Start();
  const net::WaitLimits limits = {SystemClock().Now() + absl::Minutes(2), -1};
  std::vector<UniqueFd> held;
  for (int i = 0; i < 300; ++i) {
    held.push_back(*net::Dial(server_->address(), limits));
    EXPECT_EQ(::send(held.back().get(), "\x16", 1, MSG_NOSIGNAL), 1);
  }
  const auto read = Read(*Open(), "a.bin");
  EXPECT_TRUE(read.ok()) << read.status();
}

TEST_F(DataServerTest, ACapStillMovesEveryByte) {
  options_.bytes_per_second = 64 << 20;
  Start();
  EXPECT_EQ(*Read(*Open(), "deep/b.bin"), deep_);
}

TEST_F(DataServerTest, EndsWhileAReaderWaitsForTheCap) {
  options_.bytes_per_second = 64 << 10;  // deep/b.bin takes 48 s.
  Start();
  int64_t received = 0;
  const auto store = Open();
  const absl::Status status =
      store->Read("deep/b.bin", {}, [&](absl::string_view bytes) {
        received += static_cast<int64_t>(bytes.size());
        server_.reset();
        return absl::OkStatus();
      });
  EXPECT_FALSE(status.ok());
  EXPECT_LT(received, 3 << 20);
}

TEST_F(DataServerTest, FaultsAreFoundAtTheStart) {
  options_.directory = "/missing";
  EXPECT_EQ(DataServer::Start(options_).status().code(), Code::kNotFound);
  options_.directory = published_.path();
  options_.cert_path = "/missing";
  EXPECT_EQ(DataServer::Start(options_).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace atl::worker
