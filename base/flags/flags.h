// Command lines: flags, checks of their values, subcommands and help texts.
//
// A program declares its flags and subcommands, parses once, and then reads the
// variables. CLI11 does the work behind this header. It is slow to compile, so
// no other file includes it. Its errors are values here; only a declaration
// that is wrong (a flag declared twice) ends the program.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace CLI {
class Option;
}  // namespace CLI

namespace atl::flags {

// A condition on a flag's value.
struct ValueCheck {
  std::string name;  // In the help, after the value's type; empty: nothing.
  // Returns what is wrong with a value as written; empty: nothing.
  std::function<std::string(const std::string&)> find_fault;
};

// A number from `min` to `max`, both included.
ValueCheck Range(int min, int max);
ValueCheck Range(int64_t min, int64_t max);
ValueCheck Range(double min, double max);

// A finite number above 0.
ValueCheck Positive();

// A finite number, at least 0.
ValueCheck NotNegative();

// One of `names`.
ValueCheck IsMember(const std::vector<std::string>& names);

// A declared flag or positional argument. A handle, cheap to copy; valid while
// its command is.
class Flag {
 public:
  Flag Required() const;
  // The help shows the variable's value as it is now, or `text`.
  Flag ShowDefault() const;
  Flag Default(const std::string& text) const;
  // The help does not show the flag.
  Flag Hidden() const;
  Flag Check(const ValueCheck& check) const;
  Flag Needs(const Flag& other) const;
  Flag Excludes(const Flag& other) const;
  // Without the flag the environment variable `name` gives its value.
  Flag Environment(const std::string& name) const;
  // A list's flag takes a value with several elements, split at `separator`.
  Flag Split(char separator) const;
  // A list's flag takes one value each time it is given, not all that follow.
  Flag OneEach() const;
  // A text's flag may be repeated; the values are joined with `separator`.
  Flag Join(char separator) const;

 private:
  friend class Command;
  explicit Flag(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

struct ParseResult {
  // --help or --version: the text is on stdout, and the program ends with 0.
  bool ended = false;
  // Not empty: the command line is wrong.
  std::string error;
};

// A program, or one of its subcommands.
class Command {
 public:
  Command(const std::string& name, const std::string& description);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const std::string& name() const;

  // Declares a flag ("--dir", "-o,--format") or a positional argument ("file").
  // The parse sets `value` if the flag is given; `value` must outlive it. A list
  // takes all values that follow.
  // T: std::string, int, int64_t, uint64_t, double, bool, an optional of the
  // first two, or a vector of them.
  template <typename T>
  Flag Add(const std::string& name, T& value, const std::string& help = "");
  // The same for a text without a variable: `check` takes it.
  Flag AddText(const std::string& name, const ValueCheck& check,
               const std::string& help);
  // The same for a flag without a value.
  Flag AddFlag(const std::string& name, bool& is_given,
               const std::string& help = "");
  // --version prints the program's name and version.
  void AddVersion();

  // A subcommand. It lives as long as this, and takes over FallThrough().
  Command& AddCommand(const std::string& name, const std::string& help);
  // A command line without a subcommand is wrong.
  Command& RequireCommand();
  // Subcommands take this command's flags too.
  Command& FallThrough();
  // The end of the help.
  Command& Footer(const std::string& text);
  // The parse calls `action` if this command is chosen.
  Command& Action(std::function<void()> action);

  // Parses the arguments after the program's name. An underscore in a flag's
  // name is a dash. For the program's command, once.
  ParseResult Parse(std::vector<std::string> arguments);
  // Parses, and reports an error to stderr. Returns an exit code if the program
  // must end: 0, 1 if the help could not be written, or 2 after a wrong command
  // line.
  std::optional<int> ParseOrEnd(int argc, char** argv);

  // After the parse.

  bool IsChosen() const;
  // The full name of the chosen subcommand: "atoll run create".
  std::string ChosenName() const;
  // The values that were given to this command's flag or argument `name`, as
  // written. Empty if it was not given or does not exist.
  std::vector<std::string> Values(const std::string& name) const;
  // The flags that were given to this command and to those above it, as
  // "--name=value" or "--name". Leaves out positional arguments, and the flags
  // whose names, without dashes, are in `left_out`.
  std::vector<std::string> GivenFlags(
      const std::set<std::string>& left_out) const;

 private:
  struct Impl;
  explicit Command(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace atl::flags
