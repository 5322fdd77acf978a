#include "cli/enrol/join_input.h"

#include <fcntl.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <functional>
#include <sstream>
#include <string>
#include <utility>

#include "base/identity/join_string.h"
#include "base/io/unique_fd.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

JoinString SomeJoin() {
  return {"gate.example.org:7402", "spring", "abcdefghijkl",
          std::string(32, 's'), std::string(43, 'A')};
}

// Calls `on_prompt` once, when the prompt is there.
class Prompt : public std::stringbuf {
 public:
  explicit Prompt(std::function<void()> on_prompt)
      : on_prompt_(std::move(on_prompt)) {}

 protected:
  int sync() override {
    if (on_prompt_) std::exchange(on_prompt_, nullptr)();
    return 0;
  }

 private:
  std::function<void()> on_prompt_;
};

class JoinInputTest : public testing::Test {
 protected:
  void SetUp() override {
    screen_ = UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY));
    ASSERT_GE(screen_.get(), 0);
    ASSERT_EQ(::grantpt(screen_.get()), 0);
    ASSERT_EQ(::unlockpt(screen_.get()), 0);
    keyboard_ = UniqueFd(::open(::ptsname(screen_.get()), O_RDWR | O_NOCTTY));
    ASSERT_GE(keyboard_.get(), 0);
  }

  // What is read if a person pastes `text` at the prompt.
  absl::StatusOr<std::string> Paste(const std::string& text) {
    Prompt prompt([&] {
      EXPECT_EQ(::write(screen_.get(), text.data(), text.size()),
                static_cast<ssize_t>(text.size()));
    });
    std::ostream messages(&prompt);
    std::istringstream unused;
    absl::StatusOr<std::string> read =
        ReadJoinText({unused, keyboard_.get()}, messages);
    EXPECT_NE(prompt.str().find("paste the join string"), std::string::npos);
    return read;
  }

  // What a program reads that comes later.
  std::string Left() {
    ::fcntl(keyboard_.get(), F_SETFL, O_NONBLOCK);
    char bytes[256];
    const ssize_t count = ::read(keyboard_.get(), bytes, sizeof(bytes));
    return std::string(bytes, count > 0 ? count : 0);
  }
  std::string Shown() {
    ::fcntl(screen_.get(), F_SETFL, O_NONBLOCK);
    char bytes[8192];
    const ssize_t count = ::read(screen_.get(), bytes, sizeof(bytes));
    return std::string(bytes, count > 0 ? count : 0);
  }
  bool Echoes() {
    termios now = {};
    EXPECT_EQ(::tcgetattr(keyboard_.get(), &now), 0);
    return (now.c_lflag & ECHO) != 0 && (now.c_lflag & ICANON) != 0;
  }

  UniqueFd screen_;    // What the person's side reads and writes.
  UniqueFd keyboard_;  // The program's side.
};

TEST_F(JoinInputTest, AWrappedStringIsReadToItsChecksum) {
  const std::string text = FormatJoinString(SomeJoin());
  // With a blank line, and text after it.
  const std::string pasted = "\"" + text.substr(0, 40) + "\r\r" +
                             text.substr(40, 60) + "\r" + text.substr(100) +
                             "\" and\rrm -rf x\r";
  const absl::StatusOr<std::string> read = Paste(pasted);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ParseJoinString(*read).value(), SomeJoin());
  EXPECT_EQ(Left(), "");
  EXPECT_EQ(Shown(), "") << "the secret was shown";
  EXPECT_TRUE(Echoes());
}

TEST_F(JoinInputTest, AWrongLineEndsTheRead) {
  EXPECT_EQ(*Paste("hello\rworld\r"), "hello\n");
  EXPECT_EQ(Left(), "");
}

TEST_F(JoinInputTest, EnterAloneEndsAnIncompleteString) {
  const std::string text = FormatJoinString(SomeJoin()).substr(0, 50);
  EXPECT_EQ(*Paste(text + "\r\r"), text + "\n\n");
}

TEST_F(JoinInputTest, CorrectionsCount) {
  EXPECT_EQ(*Paste("x\x15" "atolx\x7fl://\x04"), "atoll://");
}

TEST_F(JoinInputTest, CtrlCStopsAndTheTerminalIsAsBefore) {
  EXPECT_TRUE(absl::IsCancelled(Paste("atoll://g\x03").status()));
  EXPECT_TRUE(Echoes());
}

TEST_F(JoinInputTest, APipeIsReadToItsEnd) {
  std::istringstream in("atoll://g\n  more\n");
  std::ostringstream messages;
  EXPECT_EQ(*ReadJoinText({in}, messages), "atoll://g\n  more\n");
  EXPECT_EQ(messages.str(), "");
}

}  // namespace
}  // namespace atl::cli
