#include "cli/output/output.h"

#include <cerrno>
#include <cstdint>
#include <sstream>

#include "atoll/v1/run.pb.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

class OutputTest : public ::testing::Test {
 protected:
  Output Make(OutputFormat format) { return Output(format, data_, messages_); }

  std::ostringstream data_;
  std::ostringstream messages_;
};

TEST_F(OutputTest, ATableIsTextAlone) {
  Make(OutputFormat::kTable).Print({{"a", 1}}, "A\n1\n");
  EXPECT_EQ(data_.str(), "A\n1\n");
  EXPECT_EQ(messages_.str(), "");
}

TEST_F(OutputTest, JsonIsOneEnvelope) {
  Make(OutputFormat::kJson).Print({{"a", 1}}, "A\n1\n");
  EXPECT_EQ(Json::parse(data_.str()),
            Json::parse(R"({"schema_version": 1, "status": "ok",
                            "exit_code": 0, "data": {"a": 1}})"));
}

TEST_F(OutputTest, JsonlIsALineAnItem) {
  Make(OutputFormat::kJsonl)
      .PrintList("things", Json::parse(R"([{"a": 1}, {"a": 2}])"), "");
  EXPECT_EQ(data_.str(),
            R"({"schema_version":1,"status":"ok","exit_code":0,"data":{"a":1}})"
            "\n"
            R"({"schema_version":1,"status":"ok","exit_code":0,"data":{"a":2}})"
            "\n");
}

TEST_F(OutputTest, EventsAreLinesOrOneListAtTheEnd) {
  Output lines = Make(OutputFormat::kTable);
  lines.PrintEvent({{"a", 1}}, "one");
  lines.FinishStream("events");
  EXPECT_EQ(data_.str(), "one\n");

  data_.str("");
  Output json = Make(OutputFormat::kJson);
  json.PrintEvent({{"a", 1}}, "one");
  json.PrintEvent({{"a", 2}}, "two");
  EXPECT_EQ(data_.str(), "");
  json.FinishStream("events");
  EXPECT_EQ(Json::parse(data_.str())["data"]["events"].size(), 2);
}

// A full disk, as std::ostream sees it.
class FullBuffer : public std::stringbuf {
 protected:
  int sync() override {
    errno = ENOSPC;
    return -1;
  }
};

TEST_F(OutputTest, DataThatCannotBeWrittenIsAnError) {
  for (const OutputFormat format :
       {OutputFormat::kTable, OutputFormat::kJson, OutputFormat::kJsonl}) {
    FullBuffer full;
    std::ostream data(&full);
    messages_.str("");
    Output output(format, data, messages_);
    EXPECT_TRUE(output.data_status().ok());
    output.Print({{"a", 1}}, "A\n1\n");
    EXPECT_EQ(GetReason(output.data_status()), "CANNOT_WRITE_OUTPUT");
    EXPECT_EQ(output.Finish(absl::OkStatus()), ExitCode::kFailed);
    EXPECT_EQ(messages_.str(),
              "atoll: the output could not be written: No space left on "
              "device\n");
    EXPECT_EQ(output.Finish(absl::NotFoundError("no run")),
              ExitCode::kNotFound);
  }
}

TEST_F(OutputTest, AnErrorHasCodeReasonMessageAndHint) {
  const ExitCode code =
      Make(OutputFormat::kJson)
          .Finish(WithHint(
              WithReason(absl::NotFoundError("no run 'x'"), "RUN_NOT_FOUND"),
              "atoll run list"));
  EXPECT_EQ(code, ExitCode::kNotFound);
  const Json envelope = Json::parse(data_.str());
  EXPECT_EQ(envelope["status"], "error");
  EXPECT_EQ(envelope["exit_code"], 8);
  EXPECT_EQ(envelope["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(envelope["error"]["reason"], "RUN_NOT_FOUND");
  EXPECT_EQ(envelope["error"]["message"], "no run 'x'");
  EXPECT_EQ(envelope["error"]["hint"], "atoll run list");
  EXPECT_THAT(messages_.str(), HasSubstr("no run 'x'"));
}

TEST_F(OutputTest, AnErrorOfATableIsNoData) {
  Make(OutputFormat::kTable).Finish(absl::InternalError("bug"));
  EXPECT_EQ(data_.str(), "");
  EXPECT_THAT(messages_.str(), HasSubstr("bug"));
}

TEST_F(OutputTest, TheTextOfAPeerMovesNoCursor) {
  Make(OutputFormat::kTable)
      .Finish(WithHint(absl::AbortedError("one\x1b[31m\ntwo\r"), "a\x07"));
  EXPECT_EQ(messages_.str(), "atoll: one?[31m\ntwo?\n  hint: a?\n");
  messages_.str("");
  Make(OutputFormat::kTable).Message("run \u009B31m\nb");
  EXPECT_EQ(messages_.str(), "run ?31m\nb\n");
  Make(OutputFormat::kJsonl).Print({{"why", "\u009B31m\u00EF"}}, "");
  EXPECT_THAT(data_.str(), HasSubstr(R"("\u009b31m\u00ef")"));
}

TEST_F(OutputTest, AFailedCheckIsDataAndErrorInOneEnvelope) {
  Output output = Make(OutputFormat::kJson);
  const absl::Status error = WithExitCode(
      absl::FailedPreconditionError("1 check"), ExitCode::kPreflightFailed);
  output.PrintFailed({{"a", 1}}, "A\n", error);
  EXPECT_EQ(output.Finish(error), ExitCode::kPreflightFailed);
  const Json envelope = Json::parse(data_.str());
  EXPECT_EQ(envelope["status"], "error");
  EXPECT_EQ(envelope["exit_code"], 10);
  EXPECT_EQ(envelope["data"]["a"], 1);
  EXPECT_EQ(envelope["error"]["message"], "1 check");
  EXPECT_THAT(messages_.str(), HasSubstr("1 check"));
}

TEST_F(OutputTest, NoByteBreaksIt) {
  Make(OutputFormat::kJson).Print({{"text", "\xff\xfe ok"}}, "");
  EXPECT_FALSE(Json::parse(data_.str(), nullptr, false).is_discarded());
}

TEST(ToJsonTest, LongNumbersAreTextAndTimesRfc3339) {
  v1::Run run;
  run.set_run_id("a");
  run.set_run_epoch(int64_t{1} << 60);
  run.mutable_create_time()->set_seconds(1700000000);
  const Json json = ToJson(run);
  EXPECT_EQ(json["run_epoch"], "1152921504606846976");
  EXPECT_EQ(json["create_time"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(json["state_reason"], "");
}

TEST(OutputFormatTest, KnowsThree) {
  EXPECT_EQ(*ParseOutputFormat("jsonl"), OutputFormat::kJsonl);
  EXPECT_EQ(ToExitCode(ParseOutputFormat("yaml").status()), ExitCode::kUsage);
}

TEST_F(OutputTest, ErrorsAreWrappedAtATerminalAlone) {
  const absl::Status error =
      WithHint(absl::NotFoundError("there is no such thing\nlook elsewhere"),
               "Give `a longer command` or a file.");
  Make(OutputFormat::kTable).Finish(error);
  EXPECT_EQ(messages_.str(),
            "atoll: there is no such thing\nlook elsewhere\n"
            "  hint: Give `a longer command` or a file.\n");
  messages_.str("");
  Output terminal = Make(OutputFormat::kJson);
  terminal.set_columns(26);
  terminal.Finish(error);
  EXPECT_EQ(messages_.str(),
            "atoll: there is no such\n  thing\nlook elsewhere\n"
            "  hint: Give\n        `a longer command`\n        or a file.\n");
  // Data is never wrapped.
  EXPECT_EQ(Json::parse(data_.str())["error"]["hint"],
            "Give `a longer command` or a file.");
}

}  // namespace
}  // namespace atl::cli
