#include "base/object_store/https_store.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/object_store/testing/http_server.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

// A file server: one object at each path, ranges, If-Match.
class HttpsStoreTest : public ::testing::Test {
 protected:
  HttpsStoreTest()
      : server_(
            [this](const ServerRequest& request) { return Answer(request); }) {}

  std::unique_ptr<HttpTransport> MakeTransport() {
    const auto sleep = [this](absl::Duration nap) { clock_.Advance(nap); };
    return std::make_unique<HttpTransport>(HttpTransport{
        *HttpClient::Create({}),
        Retrier({}, {.clock = &clock_, .sleep = sleep}, 1), clock_});
  }

  std::unique_ptr<ObjectStore> Open(const std::string& path) {
    return MakeHttpsStore(*ParseHttpUrl(server_.origin() + path), nullptr,
                          MakeTransport());
  }

  absl::Status Read(const ReadRange& range = {}) {
    received_.clear();
    return Open("/data")->Read("a b", range, [this](absl::string_view bytes) {
      absl::StrAppend(&received_, bytes);
      return sink_status_;
    });
  }

  ServerAnswer Answer(const ServerRequest& request) {
    ++request_count_;
    if (const auto make_fault = fault_) {  // It may replace itself.
      ServerAnswer fault = make_fault(request);
      if (fault.code != 0) return fault;
    }
    const auto get = [&request](const std::string& name) {
      const auto found = request.headers.find(name);
      return found == request.headers.end() ? "" : found->second;
    };
    if (!absl::StartsWith(request.target, "/data/a%20b")) {
      return {404, {}, "no such page"};
    }
    if (!get("if-match").empty() && get("if-match") != etag_) return {412};
    ServerAnswer answer;
    if (!etag_.empty()) answer.headers = {{"ETag", etag_}};
    const std::vector<std::string> range =
        absl::StrSplit(absl::StripPrefix(get("range"), "bytes="), '-');
    if (range.size() != 2 || ignores_ranges_) {
      answer.body = object_;
      return answer;
    }
    int64_t begin = 0;
    int64_t last = static_cast<int64_t>(object_.size()) - 1;
    EXPECT_TRUE(absl::SimpleAtoi(range[0], &begin));
    if (!range[1].empty()) {
      int64_t asked = 0;
      EXPECT_TRUE(absl::SimpleAtoi(range[1], &asked));
      last = std::min(last, asked);
    }
    if (begin > last) {
      return {416,
              {{"Content-Range", absl::StrCat("bytes */", object_.size())}}};
    }
    answer.code = 206;
    answer.body = object_.substr(begin, last - begin + 1);
    answer.headers.emplace_back(
        "Content-Range",
        absl::StrCat("bytes ", begin, "-", last, "/", object_.size()));
    return answer;
  }

  // The next `count` requests are answered, then cut after `bytes`.
  void CutNext(int count, int64_t bytes) {
    const int end = request_count_ + count;
    fault_ = [this, end, bytes](const ServerRequest& request) {
      if (request_count_ > end) return ServerAnswer{.code = 0};
      const auto fault = std::exchange(fault_, nullptr);
      --request_count_;
      ServerAnswer answer = Answer(request);
      fault_ = fault;
      answer.cut_after = bytes;
      return answer;
    };
  }

  FakeClock clock_;

  std::string object_ = "0123456789";
  std::string etag_ = "\"first\"";
  bool ignores_ranges_ = false;
  // A code of 0: the usual answer.
  std::function<ServerAnswer(const ServerRequest&)> fault_;
  int request_count_ = 0;
  HttpServer server_;
  std::string received_;
  absl::Status sink_status_;
};

TEST_F(HttpsStoreTest, ReadsAWholeObjectAndARange) {
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(received_, "0123456789");
  EXPECT_TRUE(Read({2, 3}).ok());
  EXPECT_EQ(received_, "234");
  EXPECT_TRUE(Read({8}).ok());
  EXPECT_EQ(received_, "89");
  EXPECT_TRUE(Read({3, 0}).ok());
  EXPECT_EQ(received_, "");
}

TEST_F(HttpsStoreTest, ARangeBeyondTheEndIsOutOfRange) {
  EXPECT_EQ(Read({8, 3}).code(), Code::kOutOfRange);
  EXPECT_EQ(received_, "");
  EXPECT_EQ(Read({10, 1}).code(), Code::kOutOfRange);
  EXPECT_EQ(Read({11}).code(), Code::kOutOfRange);
  EXPECT_EQ(Read({INT64_MAX, 1}).code(), Code::kOutOfRange);
  EXPECT_EQ(Read({-1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Read({0, -1}).code(), Code::kInvalidArgument);
}

TEST_F(HttpsStoreTest, AnEmptyObjectIsReadWhole) {
  object_ = "";
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(received_, "");
  EXPECT_EQ(Open("/data")->Stat("a b")->size_bytes, 0);
}

TEST_F(HttpsStoreTest, StatNeedsNoHead) {
  const auto info = Open("/data/a%20b?token=x")->Stat("");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->size_bytes, 10);
  EXPECT_EQ(info->etag, "\"first\"");
  EXPECT_EQ(server_.requests().at(0).method, "GET");
  EXPECT_EQ(server_.requests().at(0).target, "/data/a%20b?token=x");
  ignores_ranges_ = true;
  EXPECT_EQ(Open("/data")->Stat("a b")->size_bytes, 10);
}

TEST_F(HttpsStoreTest, ACutReadIsResumedWhereItStopped) {
  CutNext(3, 2);
  EXPECT_TRUE(Read({1, 8}).ok());
  EXPECT_EQ(received_, "12345678");
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].headers.at("range"), "bytes=1-8");
  EXPECT_EQ(requests[0].headers.count("if-match"), 0u);
  EXPECT_EQ(requests[3].headers.at("range"), "bytes=7-8");
  EXPECT_EQ(requests[3].headers.at("if-match"), "\"first\"");
}

TEST_F(HttpsStoreTest, AReplacedObjectIsNotMixedWithTheOldOne) {
  for (const char* etag : {"\"first\"", "W/\"first\""}) {
    etag_ = etag;
    fault_ = [&](const ServerRequest&) {
      fault_ = nullptr;
      ServerAnswer answer{.headers = {{"ETag", etag_}}, .body = object_};
      answer.cut_after = 4;
      etag_ = "\"second\"";
      return answer;
    };
    EXPECT_EQ(Read().code(), Code::kAborted);
    EXPECT_EQ(received_, "0123");
  }
}

TEST_F(HttpsStoreTest, WithoutAnEtagTheSizeTellsAReplacedObject) {
  etag_ = "";
  fault_ = [&](const ServerRequest&) {
    fault_ = nullptr;
    ServerAnswer answer{.body = object_};
    answer.cut_after = 4;
    object_ += "longer";
    return answer;
  };
  EXPECT_EQ(Read().code(), Code::kAborted);
}

TEST_F(HttpsStoreTest, TheEtagOfARangeIsChecked) {
  EXPECT_TRUE(Read({0, 2, "\"first\""}).ok());
  EXPECT_EQ(Read({0, 2, "\"other\""}).code(), Code::kAborted);
  etag_ = "";
  EXPECT_EQ(Read({0, 2, "W/\"other\""}).code(), Code::kAborted);
}

TEST_F(HttpsStoreTest, BusyServersAreTriedAgainAsTheyAsk) {
  int left = 3;
  fault_ = [&](const ServerRequest&) {
    if (left-- > 0) return ServerAnswer{429, {{"Retry-After", "9"}}, ""};
    return ServerAnswer{.code = 0};
  };
  const absl::Time begin = clock_.Now();
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(received_, "0123456789");
  EXPECT_GE(clock_.Now() - begin, absl::Seconds(27));
  EXPECT_LE(clock_.Now() - begin, 1.25 * absl::Seconds(27));
}

TEST_F(HttpsStoreTest, ABrokenServerIsGivenUp) {
  fault_ = [](const ServerRequest&) { return ServerAnswer{500}; };
  const absl::Status status = Read();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("10 attempts"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("HTTP 500"));
  EXPECT_EQ(server_.requests().size(), 10u);
}

TEST_F(HttpsStoreTest, AServerWithoutRangesServesWholeObjectsOnly) {
  ignores_ranges_ = true;
  EXPECT_TRUE(Read().ok());
  EXPECT_TRUE(Read({0, 10}).ok());
  EXPECT_EQ(received_, "0123456789");
  EXPECT_EQ(Read({0, 9}).code(), Code::kUnimplemented);
  EXPECT_EQ(Read({1}).code(), Code::kUnimplemented);
  EXPECT_EQ(received_, "");
}

TEST_F(HttpsStoreTest, AnswersThatMakeNoSenseAreRefused) {
  const std::vector<ServerAnswer> answers = {
      {206, {}, "123"},
      {206, {{"Content-Range", "bytes 0-2/10"}}, "123"},
      {206, {{"Content-Range", "bytes 1-3/10"}}, "12345"},
      {204, {}, ""},
      {206, {{"Content-Range", "nonsense"}}, "123"}};
  for (const ServerAnswer& answer : answers) {
    fault_ = [&](const ServerRequest&) { return answer; };
    EXPECT_EQ(Read({1, 3}).code(), Code::kDataLoss) << answer.body;
  }
}

TEST_F(HttpsStoreTest, AShortAnswerIsContinued) {
  fault_ = [&](const ServerRequest&) {
    fault_ = nullptr;
    return ServerAnswer{
        206, {{"ETag", etag_}, {"Content-Range", "bytes 1-2/10"}}, "12"};
  };
  EXPECT_TRUE(Read({1, 5}).ok());
  EXPECT_EQ(received_, "12345");
}

TEST_F(HttpsStoreTest, ASinksErrorIsNotTriedAgain) {
  sink_status_ = absl::UnavailableError("mine");
  EXPECT_EQ(Read(), absl::UnavailableError("mine"));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(HttpsStoreTest, ErrorsNameTheUrlWithoutItsQuery) {
  const auto status = Open("/other?sig=hidden")->Stat("x/\xC3\xA9").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(server_.origin() + "/other/x/%C3%A9: HTTP 404"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hidden")));
}

TEST_F(HttpsStoreTest, IsReadOnlyAndHasNoList) {
  const auto store = Open("/data");
  EXPECT_EQ(store->List("", 1).status().code(), Code::kUnimplemented);
  EXPECT_EQ(store->Write("a", WriteMode::kReplace).status().code(),
            Code::kUnimplemented);
  EXPECT_EQ(store->Stat("../a").status().code(), Code::kInvalidArgument);
}

TEST_F(HttpsStoreTest, ADemandForATokenOverPlaintextGetsNone) {
  fault_ = [](const ServerRequest&) {
    return ServerAnswer{
        401, {{"WWW-Authenticate", "Bearer realm=\"atoll\""}}, "join first"};
  };
  const absl::Status status = MakeHttpsStore(
                                  *ParseHttpUrl(server_.origin()),
                                  [] { return "secret"; }, MakeTransport())
                                  ->Stat("a")
                                  .status();
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("join first"));
  ASSERT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(server_.requests()[0].headers.count("authorization"), 0u);
}

}  // namespace
}  // namespace atl
