#include "base/identity/join_string.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

// Bytes whose base64url has both of its own characters.
std::string Secret() {
  std::string bytes = "\xfb\xff\xfe";
  while (bytes.size() < 32) bytes.push_back(static_cast<char>(bytes.size()));
  return bytes;
}

JoinString Sample() {
  return {.gate_address = "gate.example.org:7402",
          .run_id = "spring",
          .token_id = "abcdefghij09",
          .token_secret = Secret(),
          .pin = absl::WebSafeBase64Escape(std::string(32, '\xfa'))};
}

// The parts that a test replaces.
struct Parts {
  std::string place = "gate.example.org:7402/spring";
  std::string token = "atj1_abcdefghij09";
  std::string secret = absl::WebSafeBase64Escape(Secret());
  std::string pin = Sample().pin;
};

// With the checksum of Sample(), which parts before the token do not change.
std::string Text(const Parts& parts) {
  const std::string text = FormatJoinString(Sample());
  return absl::StrCat("atoll://", parts.place, "#", parts.token, ".",
                      parts.secret, ".", parts.pin,
                      text.substr(text.rfind('.')));
}

void ExpectRefused(const std::string& text, absl::string_view words) {
  const absl::Status status = ParseJoinString(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_TRUE(absl::StrContains(status.message(), words))
      << text << ": " << status;
}

TEST(JoinStringTest, ParsesWhatItFormats) {
  EXPECT_EQ(ParseJoinString(FormatJoinString(Sample())).value(), Sample());
}

TEST(JoinStringTest, HasThisForm) {
  EXPECT_EQ(FormatJoinString(Sample()),
            "atoll://gate.example.org:7402/spring#atj1_abcdefghij09."
            "-__-AwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8."
            "-vr6-vr6-vr6-vr6-vr6-vr6-vr6-vr6-vr6-vr6-vo.5a5c677b");
}

TEST(JoinStringTest, MailMayBreakAndIndentIt) {
  const std::string text = FormatJoinString(Sample());
  for (size_t at = 0; at <= text.size(); ++at) {
    const std::string broken = absl::StrCat("  \n", text.substr(0, at),
                                            "\r\n\t ", text.substr(at), " \n");
    EXPECT_EQ(ParseJoinString(broken).value(), Sample()) << broken;
  }
}

TEST(JoinStringTest, QuotesAndSpacesThatAreNotSeenDoNotCount) {
  const std::string text = FormatJoinString(Sample());
  for (const std::string& written :
       {absl::StrCat("\"", text, "\""), absl::StrCat("'", text, "'\n"),
        absl::StrCat("<", text, ">"), absl::StrCat(" `<", text, "> `"),
        absl::StrCat("\u201c", text, "\u201d"),
        absl::StrCat("\u00a0", text.substr(0, 60), "\u00a0\n\u200b",
                     text.substr(60), "\u202f")}) {
    EXPECT_EQ(ParseJoinString(written).value(), Sample()) << written;
    EXPECT_TRUE(BeginsJoinString(written)) << written;
  }
  for (const char* other : {"", "-", "atoll:/", "127.0.0.1:7400"}) {
    EXPECT_FALSE(BeginsJoinString(other)) << other;
  }
}

TEST(JoinStringTest, TellsWhatMoreTextCouldComplete) {
  const std::string text = FormatJoinString(Sample());
  for (size_t end = 0; end < text.size(); ++end) {
    const std::string cut = text.substr(0, end);
    EXPECT_TRUE(absl::IsOutOfRange(ParseJoinString(cut).status())) << cut;
    EXPECT_TRUE(absl::IsOutOfRange(
        ParseJoinString(absl::StrCat("<", cut, "\n")).status()))
        << cut;
  }
  for (const char* other : {"x", "atoll:x", "atoll://g/r#x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJoinString(other).status()));
  }
}

TEST(JoinStringTest, TheGatesPortIs443UnlessItHasOne) {
  const std::vector<std::pair<std::string, std::string>> kTable = {
      {"gate.example.org", "gate.example.org:443"},
      {"gate.example.org:1", "gate.example.org:1"},
      {"192.0.2.7", "192.0.2.7:443"},
      {"[2001:db8::7]", "[2001:db8::7]:443"},
      {"[2001:db8::7]:7402", "[2001:db8::7]:7402"},
  };
  for (const auto& [written, address] : kTable) {
    Parts parts;
    parts.place = absl::StrCat(written, "/spring");
    EXPECT_EQ(ParseJoinString(Text(parts)).value().gate_address, address);
  }
}

TEST(JoinStringTest, ACutOffStringIsCalledIncomplete) {
  const std::string text = FormatJoinString(Sample());
  for (size_t end = text.find('#'); end < text.size(); ++end) {
    EXPECT_TRUE(absl::StrContains(
        ParseJoinString(text.substr(0, end)).status().message(),
        "is incomplete: it must end with"));
  }
}

TEST(JoinStringTest, NamesThePartThatIsWrong) {
  const auto with = [](auto change) {
    Parts parts;
    change(parts);
    return Text(parts);
  };
  ExpectRefused("https://gate.example.org/spring", "must begin with atoll://");
  for (const char* place :
       {"/spring", ":1/spring", "g:0/spring", "g:x/spring", "g h@i/spring",
        "2001:db8::7/spring", "[2001:db8::7/spring", "g:70000/spring"}) {
    ExpectRefused(with([&](Parts& p) { p.place = place; }), "names no gate");
  }
  for (const char* place : {"g:1", "g:1/", "g:1/Spring", "g:1/a/b"}) {
    ExpectRefused(with([&](Parts& p) { p.place = place; }), "names no run");
  }
  ExpectRefused(with([](Parts& p) { p.token = "atj2_abcdefghij09"; }),
                "of a newer version");
  ExpectRefused(with([](Parts& p) { p.token = "x"; }), "must have atj1_");
  for (const char* id : {"", "abcdefghij0", "abcdefghij099", "Abcdefghij09"}) {
    ExpectRefused(with([&](Parts& p) { p.token = absl::StrCat("atj1_", id); }),
                  "malformed token id");
  }
  for (const std::string& secret :
       {std::string(), std::string("+/+/+/+/+/+/+/+/+/+/+/+/"),
        absl::WebSafeBase64Escape(std::string(15, 'x')),
        absl::WebSafeBase64Escape(std::string(65, 'x')), Parts().secret + "=",
        Parts().secret.substr(1)}) {
    ExpectRefused(with([&](Parts& p) { p.secret = secret; }),
                  "malformed secret");
  }
  for (const std::string& pin :
       {std::string(), absl::WebSafeBase64Escape(std::string(31, 'x')),
        absl::WebSafeBase64Escape(std::string(33, 'x')),
        Parts().pin.substr(0, 42) + "p"}) {
    ExpectRefused(with([&](Parts& p) { p.pin = pin; }), "malformed pin");
  }
  const std::string text = FormatJoinString(Sample());
  ExpectRefused(text + ".", "has text after its end");
  ExpectRefused(text + "a", "has text after its end");
  ExpectRefused(text.substr(0, text.size() - 1) + "F", "malformed checksum");
  ExpectRefused(std::string(5000, ' '), "too long");
}

TEST(JoinStringTest, FindsEveryWrongCharacterOfTheToken) {
  const std::string text = FormatJoinString(Sample());
  for (size_t at = text.find('#'); at < text.size(); ++at) {
    for (const char c : {'0', 'A', 'a', '.', '_'}) {
      std::string changed = text;
      changed[at] = c;
      if (changed == text) continue;
      EXPECT_FALSE(ParseJoinString(changed).ok()) << changed;
    }
  }
}

TEST(JoinStringTest, NoErrorRepeatsThePartsOfTheSecret) {
  const std::string secret = absl::WebSafeBase64Escape(Secret());
  const std::string text = FormatJoinString(Sample());
  for (const std::string& wrong :
       {text.substr(0, text.size() - 3), text + "x",
        absl::StrReplaceAll(text, {{"#", "/"}}),
        absl::StrReplaceAll(text, {{"#", "%23"}}),
        absl::StrReplaceAll(text, {{"/spring", ""}}),
        absl::StrReplaceAll(text, {{"atoll://", ""}}),
        absl::StrReplaceAll(text, {{"gate.example.org:7402/spring#", ""}})}) {
    const absl::Status status = ParseJoinString(wrong).status();
    EXPECT_FALSE(status.ok());
    for (size_t at = 0; at + 8 <= secret.size(); ++at) {
      EXPECT_FALSE(absl::StrContains(status.message(), secret.substr(at, 8)))
          << status;
    }
  }
}

TEST(JoinStringTest, ASecretMayHave16To64Bytes) {
  for (const size_t size : {16, 64}) {
    JoinString join = Sample();
    join.token_secret = std::string(size, '\x80');
    EXPECT_EQ(ParseJoinString(FormatJoinString(join)).value(), join);
  }
}

}  // namespace
}  // namespace atl
