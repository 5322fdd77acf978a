#include "cli/enrol/join_input.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iostream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/time/time.h"
#include "base/identity/join_string.h"
#include "base/status/annotate.h"

namespace atl::cli {
namespace {

// A mail program may have cut the string into lines.
constexpr size_t kInputBytesMax = 4096;
// Pasted bytes come without longer pauses.
constexpr absl::Duration kPasteGap = absl::Milliseconds(200);
constexpr char kCtrlC = 3;
constexpr char kCtrlD = 4;
constexpr char kBackspace = 8;
constexpr char kCtrlU = 21;
constexpr char kDelete = 127;

// A terminal that shows nothing and hands on each byte immediately, also Ctrl-C.
class QuietTerminal {
 public:
  explicit QuietTerminal(int fd) : fd_(fd) {
    changed_ = ::tcgetattr(fd_, &before_) == 0;
    if (!changed_) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ECHONL | ISIG);
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    // Keeps what was typed ahead.
    changed_ = ::tcsetattr(fd_, TCSADRAIN, &quiet) == 0;
  }
  // Drops what was not read.
  ~QuietTerminal() {
    if (changed_) ::tcsetattr(fd_, TCSAFLUSH, &before_);
  }
  QuietTerminal(const QuietTerminal&) = delete;
  QuietTerminal& operator=(const QuietTerminal&) = delete;

  // False: nothing came within `timeout`.
  bool Await(absl::Duration timeout) const {
    pollfd poll = {.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, static_cast<int>(absl::ToInt64Milliseconds(
                                timeout))) > 0;
  }
  // The next byte. OUT_OF_RANGE: the terminal was closed.
  absl::StatusOr<char> Read() const {
    char byte = 0;
    ssize_t count = 0;
    do {
      count = ::read(fd_, &byte, 1);
    } while (count < 0 && errno == EINTR);
    if (count == 1) return byte;
    return count == 0 ? absl::OutOfRangeError("the terminal was closed")
                      : absl::UnavailableError(
                            ErrnoToStatus(errno, "the terminal").message());
  }
  void Drop() const {
    while (Await(kPasteGap) && Read().ok()) {
    }
  }

 private:
  const int fd_;
  termios before_ = {};
  bool changed_ = false;
};

// True if no further text makes `text` another join string, or a better one.
bool IsWhole(const std::string& text, char last) {
  const absl::Status status = ParseJoinString(text).status();
  if (status.ok()) return true;
  return last == '\n' && !absl::IsOutOfRange(status);
}

absl::StatusOr<std::string> ReadLines(const QuietTerminal& terminal) {
  std::string text;
  while (text.size() < kInputBytesMax) {
    const absl::StatusOr<char> byte = terminal.Read();
    if (absl::IsOutOfRange(byte.status()) || (byte.ok() && *byte == kCtrlD)) {
      return text;
    }
    if (!byte.ok()) return byte.status();
    switch (*byte) {
      case kCtrlC:
        return absl::CancelledError("stopped before a join string was given");
      case kCtrlU:
        text.clear();
        continue;
      case kBackspace:
      case kDelete:
        if (!text.empty()) text.pop_back();
        continue;
      default:
        break;
    }
    const bool is_blank = text.empty() || text.back() == '\n';
    text += *byte;
    if (IsWhole(text, *byte)) break;
    // Enter alone, unless it is a blank line of what is being pasted.
    if (*byte == '\n' && is_blank &&
        !absl::StripAsciiWhitespace(text).empty() &&
        !terminal.Await(kPasteGap)) {
      break;
    }
  }
  terminal.Drop();
  return text;
}

}  // namespace

JoinInput StandardJoinInput() {
  return {std::cin, ::isatty(STDIN_FILENO) == 1 ? STDIN_FILENO : -1};
}

absl::StatusOr<std::string> ReadJoinText(const JoinInput& input,
                                         std::ostream& messages) {
  if (input.terminal >= 0) {
    const QuietTerminal terminal(input.terminal);
    messages << "paste the join string, which is not shown, and press Enter: "
             << std::flush;
    absl::StatusOr<std::string> text = ReadLines(terminal);
    messages << "\n" << std::flush;
    return text;
  }
  std::array<char, kInputBytesMax> bytes;
  input.stream.read(bytes.data(), bytes.size());
  return std::string(bytes.data(),
                     static_cast<size_t>(input.stream.gcount()));
}

}  // namespace atl::cli
