#include "worker/data/fetch/signed_store.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/fetch/testing/fake_store.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

// The URL of every object leads to the same source, which has one object.
class SignedStoreTest : public ::testing::Test {
 protected:
  SignedStoreTest() { source_.Put("", std::string(100, 'x')); }

  absl::Status Read(const ReadRange& range = {}) {
    received_.clear();
    return store_->Read("a/b", range, [this](absl::string_view bytes) {
      absl::StrAppend(&received_, bytes);
      return sink_status_;
    });
  }

  FakeSource source_;
  std::string prefix_ = "https://host/?secret=";
  std::vector<std::string> signed_;
  std::vector<std::string> opened_;
  absl::Status sign_status_;
  absl::Status sink_status_;
  std::string received_;
  const std::unique_ptr<ObjectStore> store_ = MakeSignedStore(
      "s3://bucket/run",
      [this](const std::string& path) -> absl::StatusOr<std::string> {
        if (!sign_status_.ok()) return sign_status_;
        signed_.push_back(path);
        return absl::StrCat(prefix_, signed_.size());
      },
      [this](const std::string& url)
          -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
        opened_.push_back(url);
        return source_.Open();
      });
};

TEST_F(SignedStoreTest, AReadAsksForOneUrl) {
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(received_.size(), 100u);
  EXPECT_EQ(signed_, std::vector<std::string>{"a/b"});
  EXPECT_EQ(opened_, std::vector<std::string>{"https://host/?secret=1"});
  EXPECT_EQ(store_->Stat("a/b")->size_bytes, 100);
  EXPECT_EQ(store_->Stat("a/b")->name, "a/b");
}

TEST_F(SignedStoreTest, AnExpiredUrlIsReplacedAndTheReadGoesOn) {
  source_.AddFault({absl::PermissionDeniedError("expired"), 40});
  EXPECT_TRUE(Read({10, 80}).ok());
  EXPECT_EQ(received_.size(), 80u);
  EXPECT_EQ(signed_.size(), 2u);
  EXPECT_EQ(source_.calls()[1].offset, 50);
}

TEST_F(SignedStoreTest, ARefusalOfANewUrlIsFinal) {
  for (int i = 0; i < 5; ++i) {
    source_.AddFault({absl::PermissionDeniedError("no"), 0});
  }
  EXPECT_EQ(Read().code(), Code::kPermissionDenied);
  EXPECT_EQ(signed_.size(), 2u);
}

TEST_F(SignedStoreTest, OtherErrorsAskForNoUrl) {
  source_.AddFault({absl::UnavailableError("cut"), 40});
  EXPECT_EQ(Read().code(), Code::kUnavailable);
  EXPECT_EQ(signed_.size(), 1u);
  // Also the sink's own.
  sink_status_ = absl::PermissionDeniedError("the disk");
  EXPECT_EQ(Read().code(), Code::kPermissionDenied);
  EXPECT_EQ(signed_.size(), 2u);
}

TEST_F(SignedStoreTest, MessagesNameTheObjectAndNoSignature) {
  sign_status_ = absl::UnavailableError("the coordinator is away");
  const absl::Status status = Read();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s3://bucket/run/a/b"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  EXPECT_EQ(store_->GetUrl("a/b"), "s3://bucket/run/a/b");
}

TEST_F(SignedStoreTest, ASignedUrlNamesNoFileAndNoBucket) {
  for (const char* prefix :
       {"file:///etc/secret", "s3://bucket/secret", "FILE:///secret", "/secret",
        "", "ftp://host/secret"}) {
    prefix_ = prefix;
    const absl::Status status = Read();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << prefix;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
    EXPECT_EQ(store_->Stat("a/b").status().code(), Code::kFailedPrecondition);
  }
  EXPECT_TRUE(opened_.empty());
}

TEST_F(SignedStoreTest, IsReadOnlyAndHasNoList) {
  EXPECT_EQ(store_->List("", 1).status().code(), Code::kUnimplemented);
  EXPECT_EQ(store_->Write("a", WriteMode::kCreate).status().code(),
            Code::kUnimplemented);
}

}  // namespace
}  // namespace atl::worker
