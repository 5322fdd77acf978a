// The bound on enrolled names. coordinator_enrolment_test.cc has the rest.

#include "coordinator/core/enrolment/enrolments.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/identity/identity.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr char kTokenId[] = "abcdefghijkl";
constexpr char kSecret[] = "sixteen bytes or";

class EnrolmentsTest : public ::testing::Test {
 protected:
  EnrolmentsTest() {
    run_.run_id = "spring";
    run_.run_uid = "uid";
    storage::v1::Record record;
    storage::v1::TokenSet& set = *record.mutable_token_set();
    set.mutable_token()->set_token_id(kTokenId);
    set.mutable_token()->set_role(v1::ENROLLED_ROLE_ISLAND);
    set.mutable_token()->set_run_id(run_.run_id);
    set.mutable_token()->set_run_uid(run_.run_uid);
    set.mutable_token()->set_use_count_max(kIdentitiesMax);
    *set.mutable_token()->mutable_expire_time() =
        ToProto(now_ + absl::Hours(1));
    const codec::Sha256Digest digest = codec::ComputeSha256(kSecret);
    set.set_secret_sha256(std::string(digest.begin(), digest.end()));
    enrolments_.Apply(record);
    for (int64_t i = 0; i < kIdentitiesMax; ++i) {
      Add(absl::StrCat("island-", i), now_ + absl::Hours(24), false);
    }
  }

  void Add(const std::string& name, absl::Time end, bool revoked) {
    storage::v1::Record record;
    storage::v1::IdentitySet& set = *record.mutable_identity_set();
    set.mutable_grant()->mutable_identity()->set_run_uid(run_.run_uid);
    set.mutable_grant()->mutable_identity()->set_name(name);
    *set.mutable_grant()->mutable_end_time() = ToProto(end);
    set.set_key_sha256(std::string(32, 'o'));
    set.set_revoked(revoked);
    enrolments_.Apply(record);
  }

  absl::StatusOr<Grant> Enrol(const std::string& name) {
    v1::ConsumeTokenRequest request;
    request.set_token_id(kTokenId);
    request.set_token_secret(kSecret);
    request.set_run_id(run_.run_id);
    request.set_role(v1::ENROLLED_ROLE_ISLAND);
    request.set_name(name);
    request.set_key_sha256(std::string(32, 'n'));
    *request.mutable_lifetime() = ToProto(absl::Hours(1));
    return enrolments_.Consume(
        request, *enrolments_.FindBySecret(kTokenId, kSecret).value(), run_,
        {std::string(32, 'a'), std::string(6, 'b')}, now_);
  }

  bool Knows(const std::string& name) const {
    return enrolments_.FindIdentity(run_.run_uid, name) != nullptr;
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  EnrolmentRun run_;
  Enrolments enrolments_;
};

TEST_F(EnrolmentsTest, RefusesANameMoreWhileAllOthersCanBeRenewed) {
  Add("island-7", now_ - kRenewableAfterEnd + absl::Seconds(1), false);
  EXPECT_EQ(Enrol("attic").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(EnrolmentsTest, ANameThatCannotBeRenewedMakesRoom) {
  Add("island-7", now_ - kRenewableAfterEnd, false);
  const absl::StatusOr<Grant> granted = Enrol("attic");
  ASSERT_TRUE(granted.ok()) << granted.status();
  for (const storage::v1::Record& record : granted->records) {
    enrolments_.Apply(record);
  }
  EXPECT_TRUE(Knows("attic"));
  EXPECT_FALSE(Knows("island-7"));
}

TEST_F(EnrolmentsTest, ARevokedNameNeverMakesRoom) {
  Add("island-7", now_ - 2 * kRenewableAfterEnd, true);
  EXPECT_FALSE(Enrol("attic").ok());
}

TEST_F(EnrolmentsTest, AnOldNameThatComesBackNeedsNoRoom) {
  Add("island-7", now_ - kRenewableAfterEnd, false);
  const absl::StatusOr<Grant> granted = Enrol("island-7");
  ASSERT_TRUE(granted.ok()) << granted.status();
  EXPECT_EQ(granted->records.size(), 2);
}

}  // namespace
}  // namespace atl::coordinator
