#include "worker/collective/tcp/connection.h"

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::collective {
namespace {

absl::Time Soon() { return SystemClock().Now() + absl::Minutes(2); }

using Made = absl::StatusOr<Connection>;

// Two sockets and a wire between them that records, and may change, every byte.
class Wire {
 public:
  Wire() {
    for (int side = 0; side < 2; ++side) {
      int pair[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
      ends[side] = UniqueFd(pair[0]);
      inner_[side] = UniqueFd(pair[1]);
    }
  }

  // Carries available bytes both ways; true if there were any.
  bool Carry() {
    bool moved = false;
    for (int from = 0; from < 2; ++from) {
      char bytes[4096];
      const ssize_t count =
          recv(inner_[from].get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count <= 0) continue;
      moved = true;
      for (ssize_t i = 0; i < count; ++i) {
        if (heard.size() + i == change_at) bytes[i] ^= 1;
      }
      heard.append(bytes, count);
      EXPECT_EQ(send(inner_[1 - from].get(), bytes, count, MSG_NOSIGNAL),
                count);
    }
    return moved;
  }

  UniqueFd ends[2];
  std::string heard;            // All bytes of both directions.
  size_t change_at = ~size_t{0};  // A byte that the wire changes.

 private:
  UniqueFd inner_[2];
};

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() { std::cout << "seed " << seed_ << "\n"; }

  std::string RandomBytes(size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  void Shake(const std::string& dialling, const std::string& accepting,
             absl::Status statuses[2],
             int64_t rekey_bytes = WorldKey::kRekeyBytes) {
    sides_[0] = *Connection::Dialled(std::move(wire_.ends[0]),
                                     *WorldKey::Create(dialling, rekey_bytes));
    sides_[1] = *Connection::Accepted(
        std::move(wire_.ends[1]), *WorldKey::Create(accepting, rekey_bytes));
    bool done[2] = {};
    while (!(done[0] && done[1])) {
      bool moved = false;
      for (int side = 0; side < 2; ++side) {
        if (done[side]) continue;
        const absl::StatusOr<bool> shaken = sides_[side].Handshake();
        statuses[side] = shaken.status();
        done[side] = !shaken.ok() || *shaken;
        moved |= done[side];
        while (wire_.Carry()) moved = true;
      }
      ASSERT_TRUE(moved) << "both wait";
    }
  }

  // Sends `bytes` in pieces, some with a header, and receives other pieces.
  void Exchange(int from, const std::string& bytes) {
    std::string received;
    size_t sent = 0;
    size_t header = 0, data = 0;
    while (received.size() < bytes.size()) {
      if (header + data == 0) {
        header = std::min<size_t>(random_() % 3 == 0 ? 0 : 40,
                                  bytes.size() - sent);
        data = std::min<size_t>(random_() % 40000,
                                bytes.size() - sent - header);
        if (header + data == 0 && sent < bytes.size()) data = 1;
      }
      std::vector<iovec> parts;
      if (header > 0) {
        parts.push_back({const_cast<char*>(bytes.data()) + sent, header});
      }
      if (data > 0) {
        parts.push_back(
            {const_cast<char*>(bytes.data()) + sent + header, data});
      }
      ssize_t count = 0;
      if (!parts.empty()) count = sides_[from].Send(parts);
      ASSERT_GE(count, 0);
      sent += count;
      const size_t of_header = std::min<size_t>(count, header);
      header -= of_header;
      data -= count - of_header;
      wire_.Carry();
      std::string one(1 + random_() % 100, '\0'), two(random_() % 30000, '\0');
      const iovec room[] = {{one.data(), one.size()}, {two.data(), two.size()}};
      count = sides_[1 - from].Receive(
          absl::MakeConstSpan(room, two.empty() ? 1 : 2));
      ASSERT_GE(count, 0);
      one += two;
      received += one.substr(0, count);
    }
    EXPECT_TRUE(received == bytes);
  }

  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  Wire wire_;
  Connection sides_[2];
};

TEST_F(ConnectionTest, WhoKnowsTheSecretIsHeard) {
  absl::Status statuses[2];
  // With keys that change often.
  Shake("secret", "secret", statuses, 50'000);
  ASSERT_TRUE(statuses[0].ok()) << statuses[0];
  ASSERT_TRUE(statuses[1].ok()) << statuses[1];
  const std::string bytes = RandomBytes(1'000'000);
  wire_.heard.clear();
  Exchange(0, bytes);
  Exchange(1, bytes);
  // An eavesdropper cannot read them.
  EXPECT_FALSE(absl::StrContains(wire_.heard, bytes.substr(5000, 16)));
}

TEST_F(ConnectionTest, InTheClearBytesAreAsTheyAre) {
  absl::Status statuses[2];
  Shake("secret", "secret", statuses);
  ASSERT_TRUE(statuses[0].ok() && statuses[1].ok());
  // Bytes sent before are not lost.
  const std::string hello = RandomBytes(100);
  ASSERT_TRUE(SendAll(sides_[0], hello, Soon()).ok());
  sides_[0].GoInTheClear();
  const std::string bytes = RandomBytes(100'000);
  const iovec first = {const_cast<char*>(bytes.data()), 1000};
  ASSERT_EQ(sides_[0].Send({&first, 1}), 1000);
  while (wire_.Carry()) {
  }
  std::string heard(100, '\0');
  const iovec room = {heard.data(), heard.size()};
  ASSERT_EQ(sides_[1].Receive({&room, 1}), 100);
  EXPECT_EQ(heard, hello);
  sides_[1].GoInTheClear();
  std::string rest(1000, '\0');
  const iovec more = {rest.data(), rest.size()};
  ASSERT_EQ(sides_[1].Receive({&more, 1}), 1000);
  EXPECT_EQ(rest, bytes.substr(0, 1000));
  wire_.heard.clear();
  Exchange(0, bytes);
  Exchange(1, bytes);
  EXPECT_TRUE(absl::StrContains(wire_.heard, bytes.substr(5000, 16)));
}

TEST_F(ConnectionTest, AnotherSecretIsToldToBothSides) {
  absl::Status statuses[2];
  Shake("secret", "secreT", statuses);
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "has another secret"))
        << status;
  }
  EXPECT_FALSE(absl::StrContains(wire_.heard, "secre"));
}

TEST_F(ConnectionTest, AByteThatWasChangedIsNeverDelivered) {
  for (int repeat = 0; repeat < 30; ++repeat) {
    wire_ = Wire();
    absl::Status statuses[2];
    Shake("secret", "secret", statuses);
    ASSERT_TRUE(statuses[0].ok() && statuses[1].ok());
    const std::string bytes = RandomBytes(1000);
    wire_.change_at = wire_.heard.size() + random_() % 1000;
    ASSERT_TRUE(SendAll(sides_[0], bytes, Soon()).ok());
    while (wire_.Carry()) {
    }
    std::string got(1000, '\0');
    const iovec room = {got.data(), got.size()};
    // After a changed length the receiver waits for bytes that never come.
    EXPECT_LE(sides_[1].Receive({&room, 1}), 0);
  }
}

TEST_F(ConnectionTest, AnEndIsAnEnd) {
  absl::Status statuses[2];
  Shake("secret", "secret", statuses);
  sides_[0] = Connection();
  wire_ = Wire();  // Cuts the wire too.
  char byte;
  const iovec room = {&byte, 1};
  EXPECT_EQ(sides_[1].Receive({&room, 1}), -1);
  EXPECT_EQ(sides_[1].Send({&room, 1}), -1);
  EXPECT_TRUE(absl::IsUnavailable(SendAll(sides_[1], "more", Soon())));
}

// A foreign TLS server with a self-signed certificate.
class Impostor {
 public:
  Impostor() : key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
    X509_gmtime_adj(X509_getm_notBefore(certificate_), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate_), 3600);
    X509_set_pubkey(certificate_, key_);
    X509_NAME* const name = X509_get_subject_name(certificate_);
    X509_NAME_add_entry_by_txt(
        name, "CN", MBSTRING_ASC,
        reinterpret_cast<const unsigned char*>("impostor"), -1, -1, 0);
    X509_set_issuer_name(certificate_, name);
    X509_sign(certificate_, key_, EVP_sha256());
    context_ = SSL_CTX_new(TLS_method());
    EXPECT_EQ(SSL_CTX_use_certificate(context_, certificate_), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_, key_), 1);
  }
  ~Impostor() {
    SSL_CTX_free(context_);
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }
  SSL* Make(int fd) {
    SSL* const ssl = SSL_new(context_);
    SSL_set_fd(ssl, fd);
    return ssl;
  }

 private:
  EVP_PKEY* key_;
  X509* certificate_;
  SSL_CTX* context_ = nullptr;
};

TEST_F(ConnectionTest, ACertificateIsNotTheSecret) {
  Impostor impostor;
  for (const bool dials : {false, true}) {
    wire_ = Wire();
    SSL* const ssl = impostor.Make(wire_.ends[1].get());
    dials ? SSL_set_connect_state(ssl) : SSL_set_accept_state(ssl);
    const auto key = *WorldKey::Create("secret");
    Connection own =
        dials ? *Connection::Accepted(std::move(wire_.ends[0]), key)
              : *Connection::Dialled(std::move(wire_.ends[0]), key);
    absl::StatusOr<bool> shaken = false;
    for (int turn = 0; turn < 20 && shaken.ok() && !*shaken; ++turn) {
      SSL_do_handshake(ssl);
      while (wire_.Carry()) {
      }
      shaken = own.Handshake();
      while (wire_.Carry()) {
      }
    }
    EXPECT_TRUE(absl::IsPermissionDenied(shaken.status())) << shaken.status();
    SSL_free(ssl);
  }
}

TEST_F(ConnectionTest, NoSecretIsNone) {
  EXPECT_TRUE(absl::IsInvalidArgument(WorldKey::Create("").status()));
}

}  // namespace
}  // namespace atl::collective
