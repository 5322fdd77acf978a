#include "base/rpc/certificates/data_token.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "base/rpc/certificates/authority.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

using ::testing::HasSubstr;

class DataTokenTest : public ::testing::Test {
 protected:
  std::string Sign(const DataToken& token) const {
    return *SignDataToken(token, ca_.key_pem);
  }

  // Why `text` is refused; empty if it is not.
  std::string Refusal(const std::string& text, const std::string& ca_pem,
                      absl::Time now) const {
    const absl::Status status = VerifyDataToken(text, ca_pem, now).status();
    EXPECT_TRUE(status.ok() || absl::IsUnauthenticated(status)) << status;
    return std::string(status.message());
  }

  const absl::Time now_ = absl::FromUnixSeconds(1800000000);
  const KeyAndCertificate ca_ = *MakeAuthority("island CA", now_, now_);
  const KeyAndCertificate other_ = *MakeAuthority("another", now_, now_);
  const DataToken token_ = {"c1", "r1", Role::kIsland, "kitchen-2",
                            now_ + absl::Hours(24)};
};

TEST_F(DataTokenTest, ASignedTokenSaysWhatWasSigned) {
  const auto read = VerifyDataToken(Sign(token_), ca_.cert_pem, now_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cluster_id, "c1");
  EXPECT_EQ(read->run_uid, "r1");
  EXPECT_EQ(read->role, Role::kIsland);
  EXPECT_EQ(read->name, "kitchen-2");
  EXPECT_EQ(read->end, token_.end);
  DataToken reader = token_;
  reader.role = Role::kReader;
  EXPECT_EQ(VerifyDataToken(Sign(reader), ca_.cert_pem, now_)->role,
            Role::kReader);
}

TEST_F(DataTokenTest, ATokenNeedsNoEscapes) {
  const std::string text = Sign(token_);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  })) << text;
  EXPECT_LT(text.size(), 400u);
}

TEST_F(DataTokenTest, ATokenIsRefusedFromItsEndOn) {
  const std::string text = Sign(token_);
  EXPECT_EQ(Refusal(text, ca_.cert_pem, token_.end - absl::Nanoseconds(1)), "");
  EXPECT_THAT(Refusal(text, ca_.cert_pem, token_.end), HasSubstr("ended at"));
}

TEST_F(DataTokenTest, OnlyTheIslandCasKeyMakesATokenGood) {
  const std::string text = Sign(token_);
  EXPECT_THAT(Refusal(text, other_.cert_pem, now_), HasSubstr("not signed"));
  EXPECT_THAT(Refusal(text, "", now_), HasSubstr("not signed"));
  // One of several is enough.
  EXPECT_EQ(Refusal(text, other_.cert_pem + ca_.cert_pem, now_), "");
}

TEST_F(DataTokenTest, AnyChangedByteIsRefused) {
  const std::string text = Sign(token_);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == 'x' ? 'y' : 'x';
    // The last digit of base64 has bits that mean nothing.
    if (i + 1 == text.size()) continue;
    EXPECT_NE(Refusal(changed, ca_.cert_pem, now_), "") << i;
  }
  for (const std::string& wrong :
       {std::string(), std::string("."), std::string("......"), text + ".x",
        text.substr(0, text.rfind('.')),
        std::string("atd1.a.b.island.c.9999999999."),
        std::string(100000, 'x')}) {
    EXPECT_NE(Refusal(wrong, ca_.cert_pem, now_), "") << wrong.substr(0, 80);
  }
}

TEST_F(DataTokenTest, OnlyIslandsAndReadersHaveTokens) {
  DataToken token = token_;
  token.role = Role::kOperator;
  EXPECT_THAT(Refusal(Sign(token), ca_.cert_pem, now_), HasSubstr("malformed"));
  token = token_;
  token.name = "";
  EXPECT_THAT(Refusal(Sign(token), ca_.cert_pem, now_), HasSubstr("malformed"));
}

TEST_F(DataTokenTest, ABrokenKeySignsNothing) {
  EXPECT_EQ(SignDataToken(token_, "no key").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::rpc
