#include "tests/benchmarks/child_process.h"

#include <memory>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace atl::benchmarks {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);

TEST(ChildProcessTest, AnswersLineByLine) {
  auto child = ChildProcess::Start({"/bin/cat"});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->WriteLine("one").ok());
  ASSERT_TRUE((*child)->WriteLine("two").ok());
  EXPECT_EQ(*(*child)->ReadLine(kPatience), "one");
  EXPECT_TRUE((*child)->Expect("two", kPatience).ok());
}

TEST(ChildProcessTest, AnAnswerThatIsNotExpectedIsAnErrorThatQuotesIt) {
  auto child = ChildProcess::Start({"/bin/cat"});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->WriteLine("the truth").ok());
  const absl::Status status = (*child)->Expect("a lie", kPatience);
  EXPECT_NE(status.message().find("the truth"), absl::string_view::npos);
}

TEST(ChildProcessTest, TheEndOfTheChildIsAnError) {
  auto child = ChildProcess::Start({"/bin/true"});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ((*child)->ReadLine(kPatience).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(ChildProcessTest, AChildThatSaysNothingIsWaitedForInBounds) {
  auto child = ChildProcess::Start({"/bin/cat"});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ((*child)->ReadLine(absl::Milliseconds(5)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace atl::benchmarks
