#include "base/object_store/s3_store.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/https_store.h"
#include "base/object_store/testing/fake_s3.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Code = absl::StatusCode;

constexpr int64_t kPartBytes = 1000;

class S3StoreTest : public ::testing::Test {
 protected:
  S3StoreTest() : s3_(clock_) {
    variables_ = {{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"},
                  {"AWS_SECRET_ACCESS_KEY", "secret/key+1"},
                  {"AWS_ENDPOINT_URL", s3_.origin()}};
  }

  Environment MakeEnvironment() {
    return [this](absl::string_view name) -> std::optional<std::string> {
      const auto found = variables_.find(std::string(name));
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    };
  }

  std::unique_ptr<HttpTransport> MakeTransport() {
    const Waiting waiting{
        .clock = &clock_,
        .sleep = [this](absl::Duration nap) { clock_.Advance(nap); },
        .cancelled = [this] { return cancelled_; }};
    return std::make_unique<HttpTransport>(
        HttpTransport{*HttpClient::Create({.cancelled = waiting.cancelled}),
                      Retrier({}, waiting, 1),
                      wall_clock_ == nullptr ? clock_ : *wall_clock_});
  }

  std::unique_ptr<S3Session> MakeSession() {
    auto place = FindS3Place("bucket", MakeEnvironment());
    EXPECT_TRUE(place.ok()) << place.status();
    return std::make_unique<S3Session>(*place, MakeEnvironment(),
                                       MakeTransport());
  }

  ObjectStore& store() {
    if (store_ == nullptr) {
      store_ = MakeS3Store("run/a b", MakeSession(), kPartBytes);
    }
    return *store_;
  }

  absl::Status Put(const std::string& name, const std::string& bytes,
                   WriteMode mode = WriteMode::kReplace) {
    auto writer = store().Write(name, mode);
    if (!writer.ok()) return writer.status();
    const absl::Status status = (*writer)->Append(bytes);
    return status.ok() ? (*writer)->Commit() : status;
  }

  absl::StatusOr<std::string> Get(const std::string& name,
                                  const ReadRange& range = {}) {
    std::string out;
    const absl::Status status =
        store().Read(name, range, [&out](absl::string_view bytes) {
          absl::StrAppend(&out, bytes);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return out;
  }

  std::vector<std::string> ListNames(const std::string& prefix) {
    const auto found = store().List(prefix, 1000);
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> names;
    if (!found.ok()) return names;
    for (const ObjectInfo& info : *found) names.push_back(info.name);
    return names;
  }

  // Requests of `method` whose target has `part` are answered with `code`,
  // `count` times, before anything happens.
  void FailNext(int count, const std::string& method, const std::string& part,
                int code, HttpHeaders headers = {}) {
    auto left = std::make_shared<int>(count);
    s3_.SetFault(
        [=](const ServerRequest& request) -> std::optional<ServerAnswer> {
          if (request.method != method ||
              !absl::StrContains(request.target, part))
            return std::nullopt;
          if ((*left)-- <= 0) return std::nullopt;
          return ServerAnswer{code, headers, ""};
        });
  }

  // The next answer of `method` to a target with `part` is lost: its work is
  // done.
  void LoseNext(const std::string& method, const std::string& part) {
    auto is_done = std::make_shared<bool>(false);
    s3_.SetSpoiler([=](const ServerRequest& request, ServerAnswer& answer) {
      if (*is_done || request.method != method ||
          !absl::StrContains(request.target, part)) {
        return;
      }
      *is_done = true;
      answer = {500, {}, ""};
    });
  }

  int CountRequests(const std::string& method, const std::string& part = "") {
    int count = 0;
    for (const ServerRequest& request : s3_.requests()) {
      count +=
          request.method == method && absl::StrContains(request.target, part);
    }
    return count;
  }

  FakeClock clock_;
  FakeClock* wall_clock_ = nullptr;  // Null: clock_.
  bool cancelled_ = false;
  std::map<std::string, std::string> variables_;
  FakeS3 s3_;
  std::unique_ptr<ObjectStore> store_;
};

// --- Objects -----------------------------------------------------------------

TEST_F(S3StoreTest, ReadsWhatItWrote) {
  ASSERT_TRUE(Put("x", "hello").ok());
  EXPECT_EQ(s3_.Get("run/a b/x"), "hello");
  EXPECT_EQ(*Get("x"), "hello");
  EXPECT_EQ(*Get("x", {1, 3}), "ell");
  EXPECT_EQ(store().Stat("x")->size_bytes, 5);
  EXPECT_EQ(*HashObject(store(), "x"), codec::ComputeSha256("hello"));
  EXPECT_EQ(store().GetUrl("x"), "s3://bucket/run/a b/x");
}

TEST_F(S3StoreTest, AnyKeyIsSignedAndSentAsItIs) {
  for (const std::string name :
       {"a//b", "/a", "a/../b/./c", "a b+c", "100%/%41",
        "caf\xC3\xA9/\xE6\x97\xA5", "!'()*;:@&=+$,?#[]", "\"<>\\^`{|}",
        "\x01\x7f", "-_.~", "z/"}) {
    ASSERT_TRUE(Put(name, name).ok()) << name << Put(name, name);
    EXPECT_EQ(s3_.Get("run/a b/" + name), name);
    EXPECT_EQ(*Get(name), name);
    EXPECT_THAT(ListNames(name), ElementsAre(name));
  }
}

TEST_F(S3StoreTest, TheEmptyNameIsTheObjectOfTheUrl) {
  s3_.Put("run/a b", "object");
  EXPECT_EQ(*Get(""), "object");
  EXPECT_EQ(store().Stat("")->size_bytes, 6);
}

TEST_F(S3StoreTest, ListsAllPagesBelowTheUrl) {
  for (const char* key :
       {"run/a b", "run/a b/", "run/a b-2/x", "run/a b/z", "run/a b/c/d",
        "run/a b/c", "run/a b/e", "run/a b/f", "run"}) {
    s3_.Put(key, key);
  }
  EXPECT_THAT(ListNames(""), ElementsAre("c", "c/d", "e", "f", "z"));
  EXPECT_GE(CountRequests("GET", "continuation-token="), 2);
  EXPECT_THAT(ListNames("c"), ElementsAre("c", "c/d"));
  EXPECT_THAT(ListNames("none"), IsEmpty());
  const auto listed = store().List("z", 1);
  EXPECT_EQ(listed->at(0).size_bytes, 9);
  EXPECT_EQ(listed->at(0).etag, store().Stat("z")->etag);
  EXPECT_EQ(store().List("", 5)->size(), 5u);
  EXPECT_EQ(store().List("", 4).status().code(), Code::kResourceExhausted);
}

TEST_F(S3StoreTest, MissingObjectsAndBucketsAreNotFound) {
  EXPECT_EQ(Get("x").status().code(), Code::kNotFound);
  EXPECT_EQ(store().Stat("x").status().code(), Code::kNotFound);
  EXPECT_THAT(std::string(Get("x").status().message()),
              AllOf(HasSubstr("s3://bucket/run/a b/x"), HasSubstr("NoSuchKey"),
                    HasSubstr("404")));
  EXPECT_EQ(store().Stat(std::string(1100, 'x')).status().code(),
            Code::kInvalidArgument);
}

TEST_F(S3StoreTest, ACutReadIsResumedWhereItStopped) {
  s3_.Put("run/a b/x", std::string(5000, 'x') + "end");
  int cut_count = 0;
  s3_.SetSpoiler([&](const ServerRequest& request, ServerAnswer& answer) {
    if (request.method == "GET" && ++cut_count <= 3) answer.cut_after = 1000;
  });
  EXPECT_EQ(*Get("x", {1, 5002}), std::string(4999, 'x') + "end");
  EXPECT_EQ(s3_.requests().back().headers.at("range"), "bytes=3001-5002");
  EXPECT_EQ(s3_.requests().back().headers.count("if-match"), 1u);
}

TEST_F(S3StoreTest, AnObjectReplacedDuringTheReadIsReported) {
  s3_.Put("run/a b/x", "0123456789");
  s3_.SetSpoiler([&](const ServerRequest& request, ServerAnswer& answer) {
    if (request.method == "GET" && answer.code == 200) answer.cut_after = 5;
  });
  int call_count = 0;
  const absl::Status status = store().Read("x", {}, [&](absl::string_view) {
    if (++call_count == 1) s3_.Put("run/a b/x", "9876543210");
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), Code::kAborted) << status;
  EXPECT_EQ(call_count, 1);
}

TEST_F(S3StoreTest, AWrongByteChangesTheHash) {
  s3_.Put("run/a b/x", "0123456789");
  s3_.SetSpoiler([&](const ServerRequest&, ServerAnswer& answer) {
    if (!answer.body.empty()) answer.body[4] ^= 1;
  });
  EXPECT_NE(*HashObject(store(), "x"), codec::ComputeSha256("0123456789"));
}

// --- Writing -----------------------------------------------------------------

TEST_F(S3StoreTest, StatGivesTheSha256ThatAWriterTold) {
  for (const int64_t size : {int64_t{1}, 2 * kPartBytes + 1}) {
    const std::string bytes(size, 'x');
    auto writer = store().Write("x", WriteMode::kReplace);
    ASSERT_TRUE(writer.ok());
    (*writer)->set_sha256(absl::StrCat("of ", size));
    ASSERT_TRUE((*writer)->Append(bytes).ok());
    ASSERT_TRUE((*writer)->Commit().ok());
    EXPECT_EQ(store().Stat("x")->sha256, absl::StrCat("of ", size));
  }
  ASSERT_TRUE(Put("x", "other").ok());
  EXPECT_EQ(store().Stat("x")->sha256, "");
}

TEST_F(S3StoreTest, UpToOnePartIsOnePut) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, kPartBytes}) {
    const std::string bytes(size, 'x');
    ASSERT_TRUE(Put("x", bytes).ok());
    EXPECT_EQ(s3_.Get("run/a b/x"), bytes);
  }
  EXPECT_EQ(CountRequests("PUT"), 3);
  EXPECT_EQ(CountRequests("POST"), 0);
}

TEST_F(S3StoreTest, LongerObjectsAreUploadedInParts) {
  std::string bytes;
  for (int i = 0; i < 3 * kPartBytes + 7; ++i) bytes += static_cast<char>(i);
  for (const int64_t piece : {int64_t{1}, int64_t{999}, int64_t{2500}}) {
    auto writer = store().Write("x", WriteMode::kReplace);
    ASSERT_TRUE(writer.ok());
    for (size_t i = 0; i < bytes.size(); i += piece) {
      ASSERT_TRUE((*writer)->Append(bytes.substr(i, piece)).ok());
    }
    ASSERT_TRUE((*writer)->Commit().ok());
    EXPECT_EQ(s3_.Get("run/a b/x"), bytes);
  }
  EXPECT_EQ(CountRequests("PUT", "partNumber="), 12);
  EXPECT_EQ(s3_.upload_count(), 0);
  ASSERT_TRUE(Put("x", bytes.substr(0, 2 * kPartBytes)).ok());
  EXPECT_EQ(CountRequests("PUT", "partNumber="), 14);
}

TEST_F(S3StoreTest, AnUploadThatIsNotCommittedIsAborted) {
  auto writer = store().Write("x", WriteMode::kReplace);
  ASSERT_TRUE((*writer)->Append(std::string(2 * kPartBytes, 'x')).ok());
  EXPECT_EQ(s3_.upload_count(), 1);
  writer->reset();
  EXPECT_EQ(s3_.upload_count(), 0);
  EXPECT_EQ(s3_.Get("run/a b/x"), std::nullopt);
}

TEST_F(S3StoreTest, ACancelledUploadIsAborted) {
  auto writer = store().Write("x", WriteMode::kReplace);
  ASSERT_TRUE((*writer)->Append(std::string(2 * kPartBytes, 'x')).ok());
  cancelled_ = true;
  EXPECT_EQ((*writer)->Append(std::string(kPartBytes, 'x')).code(),
            Code::kCancelled);
  writer->reset();
  EXPECT_EQ(s3_.upload_count(), 0);
}

TEST_F(S3StoreTest, EveryRequestOfAnUploadIsTriedAgain) {
  const std::string bytes(2500, 'x');
  for (const auto& [method, part] :
       std::vector<std::pair<std::string, std::string>>{
           {"POST", "uploads="},
           {"PUT", "partNumber=2"},
           {"POST", "uploadId="},
           {"PUT", "partNumber=1"}}) {
    FailNext(2, method, part, 503);
    ASSERT_TRUE(Put(method + part, bytes).ok());
    EXPECT_EQ(s3_.Get("run/a b/" + method + part), bytes);
  }
  EXPECT_EQ(s3_.upload_count(), 0);
}

TEST_F(S3StoreTest, AnErrorInsideOfACompletedAnswerIsTriedAgain) {
  int left = 2;
  s3_.SetFault(
      [&](const ServerRequest& request) -> std::optional<ServerAnswer> {
        if (request.method != "POST" ||
            !absl::StrContains(request.target, "uploadId=") || left-- <= 0) {
          return std::nullopt;
        }
        return ServerAnswer{
            200, {}, "\n\n<Error><Code>InternalError</Code></Error>"};
      });
  EXPECT_TRUE(Put("x", std::string(2500, 'x')).ok());
  EXPECT_EQ(CountRequests("POST", "uploadId="), 3);
  left = 1000;
  const absl::Status status = Put("y", std::string(2500, 'x'));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("InternalError"));
  EXPECT_EQ(s3_.Get("run/a b/y"), std::nullopt);
  EXPECT_EQ(s3_.upload_count(), 0);
}

TEST_F(S3StoreTest, CreateKeepsTheObjectThatExists) {
  for (const int size : {5, 2500}) {
    const std::string name = absl::StrCat(size);
    ASSERT_TRUE(Put(name, "first", WriteMode::kCreate).ok());
    EXPECT_EQ(Put(name, std::string(size, 'x'), WriteMode::kCreate).code(),
              Code::kAlreadyExists);
    EXPECT_EQ(s3_.Get("run/a b/" + name), "first");
  }
}

TEST_F(S3StoreTest, OfTwoConcurrentCreatesOneWins) {
  for (const int size : {5, 2500}) {
    const std::string name = absl::StrCat(size);
    auto writer = store().Write(name, WriteMode::kCreate);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append(std::string(size, 'x')).ok());
    s3_.Put("run/a b/" + name, "other");
    EXPECT_EQ((*writer)->Commit().code(), Code::kAlreadyExists);
    writer->reset();
    EXPECT_EQ(s3_.Get("run/a b/" + name), "other");
    EXPECT_EQ(s3_.upload_count(), 0);
  }
}

TEST_F(S3StoreTest, ALostAnswerIsNoConflictWithItself) {
  LoseNext("PUT", "/small");
  EXPECT_TRUE(Put("small", "x", WriteMode::kCreate).ok());
  LoseNext("POST", "uploadId=");
  EXPECT_TRUE(Put("long", std::string(2500, 'x'), WriteMode::kCreate).ok());
  LoseNext("POST", "uploadId=");
  EXPECT_TRUE(Put("long", std::string(2500, 'y')).ok());
  EXPECT_EQ(s3_.Get("run/a b/long"), std::string(2500, 'y'));
}

TEST_F(S3StoreTest, ARemovedObjectIsGone) {
  ASSERT_TRUE(Put("x", "x").ok());
  LoseNext("DELETE", "/x");
  EXPECT_TRUE(store().Remove("x").ok());
  EXPECT_EQ(s3_.Get("run/a b/x"), std::nullopt);
  FailNext(1, "DELETE", "/x", 404);
  EXPECT_TRUE(store().Remove("x").ok());
  FailNext(1, "DELETE", "/x", 403);
  EXPECT_THAT(std::string(store().Remove("x").message()),
              HasSubstr("s3://bucket/run/a b/x"));
}

TEST_F(S3StoreTest, AbortsTheUploadsThatKilledWritersLeft) {
  std::vector<std::unique_ptr<ObjectWriter>> writers;
  for (const char* name : {"p-1", "p-2", "p-3", "p-3", "q"}) {
    auto writer = store().Write(name, WriteMode::kReplace);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append(std::string(2 * kPartBytes, 'x')).ok());
    writers.push_back(*std::move(writer));
  }
  ASSERT_EQ(s3_.upload_count(), 5);
  EXPECT_TRUE(store().RemoveUnfinished("p-").ok());
  EXPECT_EQ(s3_.upload_count(), 1);
  EXPECT_TRUE(writers[4]->Commit().ok());
  EXPECT_EQ(writers[0]->Commit().code(), Code::kNotFound);
  s3_.SetFault([](const ServerRequest&) {
    return ServerAnswer{200, {}, "<ListBucketResult/>"};
  });
  EXPECT_EQ(store().RemoveUnfinished("p-").code(), Code::kDataLoss);
}

TEST_F(S3StoreTest, AConflictOfSmallObjectsIsTriedAgain) {
  FailNext(2, "PUT", "/x", 409);
  EXPECT_TRUE(PutObject(store(), "x", "hello", WriteMode::kCreate).ok());
  EXPECT_EQ(s3_.Get("run/a b/x"), "hello");
  EXPECT_EQ(store().Stat("x")->sha256,
            codec::ToHex(codec::ComputeSha256("hello")));
  FailNext(1000, "PUT", "/y", 409);
  EXPECT_EQ(PutObject(store(), "y", "hello", WriteMode::kCreate).code(),
            Code::kAborted);
}

TEST_F(S3StoreTest, AServerThatIgnoresTheConditionIsFoundOut) {
  EXPECT_TRUE(CheckCreatesOnce(store(), "probe").ok());
  EXPECT_EQ(s3_.Get("run/a b/probe"), std::nullopt);
  FakeS3 old(clock_, {.ignores_if_none_match = true});
  variables_["AWS_ENDPOINT_URL"] = old.origin();
  const auto store = MakeS3Store("run", MakeSession(), kPartBytes);
  const absl::Status status = CheckCreatesOnce(*store, "probe");
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("s3://bucket/run/probe"),
                    HasSubstr("If-None-Match")));
  EXPECT_EQ(old.Get("run/probe"), std::nullopt);
}

TEST_F(S3StoreTest, NoProbeStaysWhereNothingMayBeRemoved) {
  FailNext(1000, "DELETE", "/probe", 403);
  EXPECT_EQ(CheckCreatesOnce(store(), "probe").code(), Code::kPermissionDenied);
  EXPECT_EQ(s3_.Get("run/a b/probe"), std::nullopt);
}

// --- Faults and refusals
// -------------------------------------------------------

TEST_F(S3StoreTest, BusyServersAreTriedAgainAsTheyAsk) {
  s3_.Put("run/a b/x", "x");
  FailNext(2, "HEAD", "/x", 503, {{"Retry-After", "11"}});
  const absl::Time begin = clock_.Now();
  EXPECT_TRUE(store().Stat("x").ok());
  EXPECT_GE(clock_.Now() - begin, absl::Seconds(22));
  EXPECT_LE(clock_.Now() - begin, 1.25 * absl::Seconds(22));
  FailNext(1000, "HEAD", "/x", 503);
  EXPECT_EQ(store().Stat("x").status().code(), Code::kUnavailable);
}

TEST_F(S3StoreTest, EachAttemptIsSignedAnew) {
  s3_.Put("run/a b/x", "x");
  int left = 3;
  s3_.SetFault([&](const ServerRequest&) -> std::optional<ServerAnswer> {
    if (left-- <= 0) return std::nullopt;
    clock_.Advance(absl::Minutes(1));
    return ServerAnswer{500};
  });
  EXPECT_TRUE(store().Stat("x").ok());
  EXPECT_NE(s3_.requests().front().headers.at("x-amz-date"),
            s3_.requests().back().headers.at("x-amz-date"));
}

TEST_F(S3StoreTest, WrongKeysArePermissionDenied) {
  variables_["AWS_SECRET_ACCESS_KEY"] = "wrong";
  const absl::Status status = Get("x").status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("403"), HasSubstr("SignatureDoesNotMatch"),
            HasSubstr("check the secret key"), Not(HasSubstr("wrong"))));
  EXPECT_EQ(s3_.requests().size(), 1u);
}

TEST_F(S3StoreTest, AClockThatIsWrongIsNamed) {
  FakeClock wrong(clock_.Now() + absl::Hours(1));
  wall_clock_ = &wrong;
  const absl::Status status = Get("x").status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("RequestTimeTooSkewed"), HasSubstr("clock")));
}

TEST_F(S3StoreTest, WithoutCredentialsNothingIsSent) {
  variables_.erase("AWS_ACCESS_KEY_ID");
  EXPECT_EQ(Get("x").status().code(), Code::kUnauthenticated);
  EXPECT_THAT(s3_.requests(), IsEmpty());
}

TEST_F(S3StoreTest, AFullServerIsResourceExhausted) {
  FailNext(1, "PUT", "/x", 507);
  EXPECT_EQ(Put("x", "x").code(), Code::kResourceExhausted);
}

TEST_F(S3StoreTest, AnAnswerThatIsNoListIsRefused) {
  for (const char* body : {"", "<html>",
                           "<ListBucketResult><Contents><Key>else</Key><Size>1"
                           "</Size></Contents></ListBucketResult>"}) {
    s3_.SetFault([=](const ServerRequest&) {
      return ServerAnswer{200, {}, body};
    });
    EXPECT_EQ(store().List("", 10).status().code(), Code::kDataLoss) << body;
  }
  s3_.SetFault([](const ServerRequest&) {
    return ServerAnswer{
        200,
        {},
        "<ListBucketResult><IsTruncated>true</IsTruncated>"
        "<NextContinuationToken>a</NextContinuationToken></ListBucketResult>"};
  });
  EXPECT_EQ(store().List("", 10).status().code(), Code::kDataLoss);
}

// --- Presigned URLs ----------------------------------------------------------

TEST_F(S3StoreTest, APresignedUrlReadsWithoutCredentials) {
  s3_.Put("a//b c\xC3\xA9", "0123456789");
  const auto url = MakeSession()->PresignGet("a//b c\xC3\xA9", absl::Hours(1));
  ASSERT_TRUE(url.ok()) << url.status();
  const auto reader =
      MakeHttpsStore(*ParseHttpUrl(url->url), nullptr, MakeTransport());
  EXPECT_EQ(reader->Stat("")->size_bytes, 10);
  std::string received;
  const auto read = [&] {
    return reader->Read("", {2, 3}, [&](absl::string_view bytes) {
      absl::StrAppend(&received, bytes);
      return absl::OkStatus();
    });
  };
  EXPECT_TRUE(read().ok());
  EXPECT_EQ(received, "234");
  clock_.Advance(absl::Hours(1) + absl::Seconds(1));
  const absl::Status expired = read();
  EXPECT_EQ(expired.code(), Code::kPermissionDenied);
  EXPECT_THAT(std::string(expired.message()),
              AllOf(HasSubstr("expired"), Not(HasSubstr("X-Amz"))));
}

TEST_F(S3StoreTest, AChangedPresignedUrlIsRefused) {
  s3_.Put("a", "x");
  s3_.Put("b", "y");
  std::string url = MakeSession()->PresignGet("a", absl::Hours(1))->url;
  url.replace(url.find("/bucket/a"), 9, "/bucket/b");
  const auto reader =
      MakeHttpsStore(*ParseHttpUrl(url), nullptr, MakeTransport());
  EXPECT_EQ(reader->Stat("").status().code(), Code::kPermissionDenied);
}

// --- Places ------------------------------------------------------------------

class S3PlaceTest : public ::testing::Test {
 protected:
  // The URL of `key` in `bucket`.
  std::string FindUrl(const std::string& bucket, const std::string& key) {
    const auto place = FindS3Place(
        bucket, [this](absl::string_view name) -> std::optional<std::string> {
          const auto found = variables_.find(std::string(name));
          if (found == variables_.end()) return std::nullopt;
          return found->second;
        });
    if (!place.ok()) return std::string(place.status().message());
    return place->endpoint.origin() + place->GetPath(key);
  }

  std::map<std::string, std::string> variables_;
};

TEST_F(S3PlaceTest, TheBucketIsInTheHostUnlessItHasADot) {
  EXPECT_EQ(FindUrl("bucket", "a//b"),
            "https://bucket.s3.us-east-1.amazonaws.com/a//b");
  EXPECT_EQ(FindUrl("my.bucket", "a"),
            "https://s3.us-east-1.amazonaws.com/my.bucket/a");
}

TEST_F(S3PlaceTest, TheRegionIsThatOfTheEnvironment) {
  variables_["AWS_DEFAULT_REGION"] = "eu-west-1";
  EXPECT_EQ(FindUrl("bucket", ""),
            "https://bucket.s3.eu-west-1.amazonaws.com/");
  variables_["AWS_REGION"] = "cn-north-1";
  EXPECT_EQ(FindUrl("bucket", ""),
            "https://bucket.s3.cn-north-1.amazonaws.com.cn/");
}

TEST_F(S3PlaceTest, AnEndpointIsAskedInPathStyle) {
  variables_["AWS_ENDPOINT_URL"] = "https://minio.example:9000";
  EXPECT_EQ(FindUrl("bucket", "a"), "https://minio.example:9000/bucket/a");
  variables_["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:1/s3/";
  EXPECT_EQ(FindUrl("bucket", "a"), "http://127.0.0.1:1/s3/bucket/a");
  variables_["AWS_ENDPOINT_URL_S3"] = "http://minio.example:9000";
  EXPECT_THAT(FindUrl("bucket", "a"), HasSubstr("AWS_ENDPOINT_URL_S3"));
}

}  // namespace
}  // namespace atl
