#include "worker/data/serve/data_answer.h"

#include <map>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/data_token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/serve/testing/published_directory.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;

class DataAnswerTest : public ::testing::Test {
 protected:
  std::string Token(const std::string& run_uid, absl::Duration left,
                    const rpc::KeyAndCertificate& ca) const {
    return *rpc::SignDataToken(
        {"c1", run_uid, Role::kIsland, "attic", now_ + left}, ca.key_pem);
  }

  DataRequest Get(const std::string& path) const {
    return {.method = "GET",
            .path = path,
            .authorization = "Bearer " + Token("r1", absl::Hours(1), ca_)};
  }

  DataAnswer Answer(const DataRequest& request) const {
    return AnswerDataRequest(request, *files_, access_, now_);
  }

  // "206 1-3" for bytes [1, 3), else the code.
  std::string Bytes(const DataRequest& request) const {
    const DataAnswer answer = Answer(request);
    if (!answer.file.fd.valid()) return absl::StrCat(answer.code);
    return absl::StrCat(answer.code, " ", answer.begin, "-", answer.end);
  }

  static std::string Header(const DataAnswer& answer, const std::string& name) {
    for (const auto& [key, value] : answer.headers) {
      if (key == name) return value;
    }
    return "";
  }

  const absl::Time now_ = absl::FromUnixSeconds(1800000000);
  const rpc::KeyAndCertificate ca_ = *rpc::MakeAuthority("ca", now_, now_);
  const rpc::KeyAndCertificate other_ = *rpc::MakeAuthority("x", now_, now_);
  const PublishedDirectory published_;
  const std::unique_ptr<ServedFiles> files_ =
      *ServedFiles::Open(published_.path());
  DataAccess access_ = {ca_.cert_pem, {}};
  const std::string etag_ =
      "\"" + codec::ToHex(codec::ComputeSha256("abcd")) + "\"";
};

TEST_F(DataAnswerTest, ATokenOpensWhatTheManifestNames) {
  const DataAnswer answer = Answer(Get("/a.bin"));
  EXPECT_EQ(answer.code, 200);
  EXPECT_TRUE(absl::StartsWith(answer.caller, "r1/")) << answer.caller;
  EXPECT_EQ(answer.end, 4);
  EXPECT_EQ(Header(answer, "ETag"), etag_);
  EXPECT_EQ(Header(answer, "Accept-Ranges"), "bytes");
  EXPECT_EQ(Bytes(Get("/deep/b.bin")), "200 0-6");
  EXPECT_EQ(Answer(Get("/manifest.json")).code, 200);
  for (const char* path :
       {"", "/", "/b.bin", "/../a.bin", "//a.bin", "a.bin/"}) {
    EXPECT_EQ(Bytes(Get(path)), "404") << path;
  }
}

TEST_F(DataAnswerTest, RangesAreServed) {
  const std::map<std::string, std::string> kTable = {
      {"bytes=0-", "206 0-4"},
      {"bytes=1-2", "206 1-3"},
      {"bytes=3-3", "206 3-4"},
      {"bytes=2-99", "206 2-4"},
      {"bytes=4-", "416"},
      {"bytes=9-9", "416"},
      {"bytes=-2", "200 0-4"},
      {"bytes=2-1", "200 0-4"},
      {"bytes=0-1,3-", "200 0-4"},
      {"items=0-1", "200 0-4"},
      {"bytes=+1-2", "200 0-4"},
      {"bytes=", "200 0-4"},
      {"bytes=99999999999999999999-", "200 0-4"}};
  for (const auto& [range, expected] : kTable) {
    DataRequest request = Get("/a.bin");
    request.range = range;
    EXPECT_EQ(Bytes(request), expected) << range;
  }
  DataRequest request = Get("/a.bin");
  request.range = "bytes=1-2";
  EXPECT_EQ(Header(Answer(request), "Content-Range"), "bytes 1-2/4");
  request.range = "bytes=4-";
  EXPECT_EQ(Header(Answer(request), "Content-Range"), "bytes */4");
}

TEST_F(DataAnswerTest, ConditionsCompareEtags) {
  DataRequest request = Get("/a.bin");
  request.range = "bytes=1-";
  request.if_range = "\"other\"";
  EXPECT_EQ(Bytes(request), "200 0-4");
  request.if_range = etag_;
  EXPECT_EQ(Bytes(request), "206 1-4");
  request.if_match = "\"other\"";
  EXPECT_EQ(Bytes(request), "412");
  request.if_match = etag_;
  EXPECT_EQ(Bytes(request), "206 1-4");
}

TEST_F(DataAnswerTest, WithoutAValidTokenNothingIsSaid) {
  for (const std::string& authorization :
       {std::string(), std::string("Basic abc"), std::string("Bearer "),
        std::string("Bearer x"),
        "Bearer " + Token("r1", absl::Hours(1), other_),
        "Bearer " + Token("r1", absl::ZeroDuration(), ca_)}) {
    for (const char* path : {"/a.bin", "/nothing"}) {
      DataRequest request = Get(path);
      request.authorization = authorization;
      const DataAnswer answer = Answer(request);
      EXPECT_EQ(answer.code, 401) << authorization;
      EXPECT_EQ(Header(answer, "WWW-Authenticate"), "Bearer realm=\"atoll\"");
      EXPECT_FALSE(answer.file.fd.valid());
    }
  }
  DataRequest request = Get("/a.bin");
  request.authorization = "";
  EXPECT_THAT(Answer(request).text, HasSubstr("atoll join"));
  request.authorization = "bearer " + Token("r1", -absl::Hours(1), ca_);
  EXPECT_THAT(Answer(request).text, HasSubstr("ended at"));
}

TEST_F(DataAnswerTest, ATokenOfAnotherRunIsForbidden) {
  access_.run_uids = {"r2", "r3"};
  const DataAnswer answer = Answer(Get("/a.bin"));
  EXPECT_EQ(answer.code, 403);
  EXPECT_THAT(answer.text, HasSubstr("run r1"));
  EXPECT_THAT(Header(answer, "WWW-Authenticate"), HasSubstr("atoll"));
  access_.run_uids = {"r2", "r1"};
  EXPECT_EQ(Answer(Get("/a.bin")).code, 200);
}

TEST_F(DataAnswerTest, OnlyReadingIsAllowed) {
  for (const char* method : {"POST", "PUT", "DELETE", "get", ""}) {
    DataRequest request = Get("/a.bin");
    request.method = method;
    EXPECT_EQ(Answer(request).code, 405) << method;
  }
  DataRequest request = Get("/a.bin");
  request.method = "HEAD";
  EXPECT_EQ(Answer(request).code, 200);
}

TEST_F(DataAnswerTest, AChangedFileIsAnErrorOfTheServer) {
  published_.Write("a.bin", "changed");
  EXPECT_EQ(Answer(Get("/a.bin")).code, 500);
}

}  // namespace
}  // namespace atl::worker
