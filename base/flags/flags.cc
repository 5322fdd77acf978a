#include "base/flags/flags.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/flags/spelling.h"
#include "base/obs/program.h"
#include "base/obs/version.h"
#include "base/status/exit_code.h"

namespace atl::flags {
namespace {

// Writes help texts with at most 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::string help =
        CLI::Formatter::make_help(app, std::move(name), mode);
    // Subcommands are within the text that is wrapped.
    if (mode == CLI::AppFormatMode::Sub) return help;
    return WrapHelp(help, get_column_width());
  }
};

ValueCheck ToCheck(const CLI::Validator& validator) {
  return {validator.get_description(), validator};
}

// A finite number that `is_right`; else it "must be `rule`".
ValueCheck NumberCheck(const std::string& name, bool (*is_right)(double),
                       const std::string& rule) {
  return {name, [is_right, rule](const std::string& text) -> std::string {
            double number = 0;
            if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) {
              return absl::StrCat("'", text, "' is not a number");
            }
            if (is_right(number)) return "";
            return absl::StrCat("must be ", rule, ", not ", text);
          }};
}

// An option that is no text. CLI11 takes an empty text for 0.
CLI::Option* NeedValue(CLI::Option* option) {
  return option->check(
      [](const std::string& text) -> std::string {
        return text.empty() ? "needs a value" : "";
      },
      "");
}

// The option `name` of `app`, or of a command below it; null: none has it.
const CLI::Option* FindOption(const CLI::App& app, const std::string& name) {
  const CLI::Option* const own = app.get_option_no_throw(name);
  if (own != nullptr) return own;
  for (const CLI::App* const command : app.get_subcommands({})) {
    const CLI::Option* const found = FindOption(*command, name);
    if (found != nullptr) return found;
  }
  return nullptr;
}

// CLI11 takes "--name=" for "--name", whose value is the next argument: here it
// is a value without characters.
void SplitEmptyValues(const CLI::App& app,
                      std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const size_t end = arguments[i].find('=');
    if (!absl::StartsWith(arguments[i], "--") ||
        end != arguments[i].size() - 1) {
      continue;
    }
    const std::string name = arguments[i].substr(0, end);
    const CLI::Option* const option = FindOption(app, name);
    if (option == nullptr || option->get_items_expected_max() == 0) continue;
    arguments[i] = name;
    arguments.insert(arguments.begin() + i + 1, "");
  }
}

}  // namespace

ValueCheck Range(int min, int max) { return ToCheck(CLI::Range(min, max)); }

ValueCheck Range(int64_t min, int64_t max) {
  return ToCheck(CLI::Range(min, max));
}

ValueCheck Range(double min, double max) {
  return ToCheck(CLI::Range(min, max));
}

ValueCheck Positive() {
  return NumberCheck(
      "POSITIVE", [](double number) { return number > 0; }, "above 0");
}

ValueCheck NotNegative() {
  return NumberCheck(
      "NONNEGATIVE", [](double number) { return number >= 0; }, "at least 0");
}

ValueCheck IsMember(const std::vector<std::string>& names) {
  return ToCheck(CLI::IsMember(names));
}

Flag Flag::Required() const { return Flag(option_->required()); }

Flag Flag::ShowDefault() const { return Flag(option_->capture_default_str()); }

Flag Flag::Default(const std::string& text) const {
  return Flag(option_->default_str(text));
}

Flag Flag::Hidden() const { return Flag(option_->group("")); }

Flag Flag::Check(const ValueCheck& check) const {
  return Flag(option_->check(check.find_fault, check.name));
}

Flag Flag::Needs(const Flag& other) const {
  return Flag(option_->needs(other.option_));
}

Flag Flag::Excludes(const Flag& other) const {
  return Flag(option_->excludes(other.option_));
}

Flag Flag::Environment(const std::string& name) const {
  return Flag(option_->envname(name));
}

Flag Flag::Split(char separator) const {
  return Flag(option_->delimiter(separator));
}

Flag Flag::OneEach() const { return Flag(option_->allow_extra_args(false)); }

Flag Flag::Join(char separator) const { return Flag(option_->join(separator)); }

struct Command::Impl {
  std::unique_ptr<CLI::App> program;  // null for a subcommand.
  CLI::App* app;
  std::vector<std::unique_ptr<Command>> commands;
};

Command::Command(const std::string& name, const std::string& description)
    : impl_(std::make_unique<Impl>()) {
  impl_->program = std::make_unique<CLI::App>(description, name);
  impl_->app = impl_->program.get();
  impl_->app->formatter(std::make_shared<HelpFormatter>());
}

Command::Command(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Command::~Command() = default;

const std::string& Command::name() const { return impl_->app->get_name(); }

template <typename T>
Flag Command::Add(const std::string& name, T& value, const std::string& help) {
  CLI::Option* const option = impl_->app->add_option(name, value, help);
  constexpr bool kIsText = std::is_same_v<T, std::string> ||
                           std::is_same_v<T, std::optional<std::string>> ||
                           std::is_same_v<T, std::vector<std::string>>;
  return Flag(kIsText ? option : NeedValue(option));
}

template Flag Command::Add(const std::string&, std::string&,
                           const std::string&);
template Flag Command::Add(const std::string&, int&, const std::string&);
template Flag Command::Add(const std::string&, int64_t&, const std::string&);
template Flag Command::Add(const std::string&, uint64_t&, const std::string&);
template Flag Command::Add(const std::string&, double&, const std::string&);
template Flag Command::Add(const std::string&, bool&, const std::string&);
template Flag Command::Add(const std::string&, std::optional<int>&,
                           const std::string&);
template Flag Command::Add(const std::string&, std::optional<std::string>&,
                           const std::string&);
template Flag Command::Add(const std::string&, std::vector<std::string>&,
                           const std::string&);
template Flag Command::Add(const std::string&, std::vector<int>&,
                           const std::string&);

Flag Command::AddText(const std::string& name, const ValueCheck& check,
                      const std::string& help) {
  return Flag(impl_->app->add_option(name, help)->type_name("TEXT"))
      .Check(check);
}

Flag Command::AddFlag(const std::string& name, bool& is_given,
                      const std::string& help) {
  return Flag(impl_->app->add_flag(name, is_given, help));
}

void Command::AddVersion() {
  impl_->app->set_version_flag("--version",
                               absl::StrCat(name(), " ", kProgramVersion));
}

Command& Command::AddCommand(const std::string& name, const std::string& help) {
  auto impl = std::make_unique<Impl>();
  impl->app = impl_->app->add_subcommand(name, help);
  impl_->commands.push_back(
      std::unique_ptr<Command>(new Command(std::move(impl))));
  return *impl_->commands.back();
}

Command& Command::RequireCommand() {
  impl_->app->require_subcommand(1);
  return *this;
}

Command& Command::FallThrough() {
  impl_->app->fallthrough();
  return *this;
}

Command& Command::Footer(const std::string& text) {
  impl_->app->footer(text);
  return *this;
}

Command& Command::Action(std::function<void()> action) {
  impl_->app->callback(std::move(action));
  return *this;
}

ParseResult Command::Parse(std::vector<std::string> arguments) {
  SpellFlagsWithDashes(arguments);
  SplitEmptyValues(*impl_->app, arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 wants it so.
  CLI::App& app = *impl_->app;
  try {
    app.parse(std::move(arguments));
    // style-ok(call): CLI11 reports by exceptions; none leaves this function.
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return {.ended = true};
    }
    const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
    // CLI11's message does not name the unknown subcommand.
    if (std::string(error.what()) == "A subcommand is required" &&
        !rest.empty()) {
      return {.error = absl::StrCat("there is no command \"", ChosenName(), " ",
                                    rest.front(), "\"")};
    }
    return {.error = error.what()};
  }
  return {};
}

std::optional<int> Command::ParseOrEnd(int argc, char** argv) {
  const ParseResult result = Parse({argv + 1, argv + argc});
  if (result.ended) return EndProgram(name(), FlushOutput());
  if (result.error.empty()) return std::nullopt;
  std::fprintf(stderr, "%s\nRun with --help for more information.\n",
               result.error.c_str());
  return static_cast<int>(ExitCode::kUsage);
}

bool Command::IsChosen() const { return impl_->app->parsed(); }

std::string Command::ChosenName() const {
  const CLI::App* at = impl_->app;
  std::string name = at->get_name();
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    absl::StrAppend(&name, " ", at->get_name());
  }
  return name;
}

std::vector<std::string> Command::Values(const std::string& name) const {
  const CLI::Option* const option = impl_->app->get_option_no_throw(name);
  return option == nullptr ? std::vector<std::string>() : option->results();
}

std::vector<std::string> Command::GivenFlags(
    const std::set<std::string>& left_out) const {
  std::vector<std::string> flags;
  for (const CLI::App* app = impl_->app; app != nullptr;
       app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      const std::vector<std::string>& names = option->get_lnames();
      if (names.empty() || option->count() == 0 ||
          std::any_of(names.begin(), names.end(), [&](const std::string& name) {
            return left_out.count(name) > 0;
          })) {
        continue;
      }
      const bool has_value = option->get_items_expected_max() > 0;
      for (const std::string& value : option->results()) {
        flags.push_back(has_value ? absl::StrCat("--", names[0], "=", value)
                                  : absl::StrCat("--", names[0]));
        if (!has_value) break;
      }
    }
  }
  return flags;
}

}  // namespace atl::flags
