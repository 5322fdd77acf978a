#include "cli/volunteer/machine_use.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace atl::cli {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kEntryCountMax = 4096;
// The memory of the mean share of other processes.
constexpr absl::Duration kShareMemory = absl::Seconds(30);

// The beginning of a file; empty if it cannot be read.
std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::vector<std::string> List(const std::string& directory) {
  std::vector<std::string> names;
  DIR* const handle = ::opendir(directory.c_str());
  if (handle == nullptr) return names;
  while (const dirent* entry = ::readdir(handle)) {
    if (names.size() >= kEntryCountMax) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(handle);
  return names;
}

int64_t ToNumber(absl::string_view text) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

// A terminal's time of access is that of the last key: reading its input sets
// it. Its output, which we write ourselves, sets the other time.
absl::Time AccessTime(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) return absl::InfinitePast();
  return absl::TimeFromTimespec(found.st_atim);
}

// Interrupts of the keyboard and mouse controller since the boot.
std::optional<int64_t> CountInputInterrupts(const std::string& text) {
  std::optional<int64_t> sum;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StrContains(line, "i8042")) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    for (size_t i = 1; i < words.size(); ++i) {
      int64_t count = 0;
      if (!absl::SimpleAtoi(words[i], &count)) break;
      sum = sum.value_or(0) + count;
    }
  }
  return sum;
}

}  // namespace

absl::Time MachineUse::LastTouch(absl::Time now) {
  absl::Time last = absl::InfinitePast();
  const auto consider = [&](const std::string& terminal) {
    const absl::Time touched = AccessTime(terminal);
    // One in the future is of a clock that was wrong, for example at the boot.
    if (touched <= now) last = std::max(last, touched);
  };
  for (const std::string& name : List(root_ + "/dev/pts")) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) continue;
    consider(absl::StrCat(root_, "/dev/pts/", name));
  }
  for (const std::string& name : List(root_ + "/dev")) {
    if (name.size() < 4 || !absl::StartsWith(name, "tty") ||
        !absl::ascii_isdigit(static_cast<unsigned char>(name[3]))) {
      continue;
    }
    consider(absl::StrCat(root_, "/dev/", name));
  }
  const std::optional<int64_t> interrupts =
      CountInputInterrupts(ReadText(root_ + "/proc/interrupts"));
  if (interrupts.has_value() && input_interrupts_.has_value() &&
      interrupts != input_interrupts_) {
    interrupted_time_ = now;
  }
  if (interrupts.has_value()) input_interrupts_ = interrupts;
  return std::max(last, interrupted_time_);
}

bool MachineUse::OnBattery() const {
  const std::string directory = root_ + "/sys/class/power_supply";
  bool has_battery = false;
  for (const std::string& name : List(directory)) {
    const std::string supply = absl::StrCat(directory, "/", name, "/");
    const std::string kind(
        absl::StripAsciiWhitespace(ReadText(supply + "type")));
    if (kind == "Battery") {
      // A mouse has a battery, too.
      has_battery |=
          absl::StripAsciiWhitespace(ReadText(supply + "scope")) != "Device";
    } else if (absl::StripAsciiWhitespace(ReadText(supply + "online")) == "1") {
      return false;
    }
  }
  return has_battery;
}

std::optional<MachineUse::Processors> MachineUse::ReadProcessors() const {
  const std::string text = ReadText(root_ + "/proc/stat");
  const std::vector<absl::string_view> times =
      absl::StrSplit(absl::string_view(text).substr(0, text.find('\n')), ' ',
                     absl::SkipEmpty());
  if (times.size() < 5 || times[0] != "cpu") return std::nullopt;
  Processors read;
  // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
  for (size_t i = 1; i < std::min<size_t>(times.size(), 9); ++i) {
    const int64_t ticks = ToNumber(times[i]);
    read.all += ticks;
    if (i != 4 && i != 5) read.busy += ticks;
  }
  const std::string own = ReadText(root_ + "/proc/self/stat");
  // The name, in parentheses, may have spaces.
  const size_t after_name = own.rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> words = absl::StrSplit(
      absl::string_view(own).substr(after_name + 1), ' ', absl::SkipEmpty());
  if (words.size() < 13) return std::nullopt;
  read.own = ToNumber(words[11]) + ToNumber(words[12]);  // utime, stime
  return read;
}

void MachineUse::UpdateShare(absl::Time now) {
  const std::optional<Processors> read = ReadProcessors();
  if (!read.has_value()) return;
  if (last_.has_value() && read->all > last_->all && now > last_time_) {
    const auto ticks = static_cast<double>(read->all - last_->all);
    const auto others = static_cast<double>((read->busy - last_->busy) -
                                            (read->own - last_->own));
    const double share = std::clamp(others / ticks, 0.0, 1.0);
    const double kept =
        std::exp(-absl::FDivDuration(now - last_time_, kShareMemory));
    share_ = kept * share_ + (1 - kept) * share;
  }
  last_ = read;
  last_time_ = now;
}

Facts MachineUse::Read(absl::Time now) {
  Facts facts;
  const absl::Time touched = LastTouch(now);
  // An interrupt in the future says that the clock went back.
  if (touched != absl::InfinitePast()) {
    facts.untouched = std::max(absl::ZeroDuration(), now - touched);
  }
  UpdateShare(now);
  facts.others_share = share_;
  facts.on_battery = OnBattery();
  return facts;
}

}  // namespace atl::cli
