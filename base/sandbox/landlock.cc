#include "base/sandbox/landlock.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/io/unique_fd.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

// As in Linux' landlock.h: that of Debian 12 knows ABI 2.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr unsigned kVersionFlag = 1;
constexpr int kPathBeneath = 1;

constexpr uint64_t kExecute = 1 << 0;
constexpr uint64_t kWriteFile = 1 << 1;
constexpr uint64_t kReadFile = 1 << 2;
constexpr uint64_t kReadDir = 1 << 3;
constexpr uint64_t kRemoveDir = 1 << 4;
constexpr uint64_t kRemoveFile = 1 << 5;
constexpr uint64_t kMakeDir = 1 << 7;
constexpr uint64_t kMakeRegular = 1 << 8;
constexpr uint64_t kMakeSocket = 1 << 9;
constexpr uint64_t kRefer = 1 << 13;
constexpr uint64_t kTruncate = 1 << 14;
constexpr uint64_t kIoctlDevice = 1 << 15;
// The rights that a rule for a file, not a directory, may have.
constexpr uint64_t kOfFiles =
    kExecute | kWriteFile | kReadFile | kTruncate | kIoctlDevice;

constexpr uint64_t kScopeAbstractSockets = 1 << 0;
constexpr uint64_t kScopeSignals = 1 << 1;

struct RulesetAttributes {
  uint64_t handled_files = 0;
  uint64_t handled_network = 0;
  uint64_t scoped = 0;
};

struct PathBeneath {
  uint64_t allowed = 0;
  int32_t parent_fd = -1;
} __attribute__((packed));

// All rights that a kernel of `abi` knows.
uint64_t KnownRights(int abi) {
  const int count = abi >= 5 ? 16 : abi >= 3 ? 15 : abi >= 2 ? 14 : 13;
  return (uint64_t{1} << count) - 1;
}

absl::Status Refused(const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status AddRule(int ruleset, const PathRule& rule, uint64_t known) {
  const UniqueFd fd(::open(rule.path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info = {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return absl::OkStatus();
  PathBeneath beneath;
  beneath.allowed =
      LandlockRights(rule.access, S_ISDIR(info.st_mode)) & known;
  beneath.parent_fd = fd.get();
  if (beneath.allowed == 0) return absl::OkStatus();
  // EBADFD: a pipe, for example, which no rule is for.
  if (::syscall(kAddRule, ruleset, kPathBeneath, &beneath, 0) != 0 &&
      errno != EBADFD) {
    return Refused("landlock_add_rule");
  }
  return absl::OkStatus();
}

}  // namespace

int LandlockAbi() {
  const long abi = ::syscall(kCreateRuleset, nullptr, 0, kVersionFlag);
  return abi > 0 ? static_cast<int>(abi) : 0;
}

uint64_t LandlockRights(PathAccess access, bool is_directory) {
  const uint64_t write = kWriteFile | kTruncate;
  uint64_t rights = 0;
  switch (access) {
    case PathAccess::kList:
      rights = kReadDir;
      break;
    case PathAccess::kRead:
      rights = kReadFile | kReadDir;
      break;
    case PathAccess::kExecute:
      rights = kReadFile | kReadDir | kExecute;
      break;
    case PathAccess::kDevice:
      rights = kReadFile | kReadDir | write | kIoctlDevice;
      break;
    case PathAccess::kWrite:
      rights = kReadFile | kReadDir | write | kRemoveDir | kRemoveFile |
               kMakeDir | kMakeRegular | kMakeSocket | kRefer;
      break;
    case PathAccess::kSocket:
      rights = kMakeSocket | kRemoveFile;
      break;
  }
  return is_directory ? rights : rights & kOfFiles;
}

absl::Status LimitPaths(int abi, absl::Span<const PathRule> rules,
                        bool hides_sockets) {
  if (abi < 1) {
    return absl::FailedPreconditionError("this kernel has no Landlock");
  }
  RulesetAttributes attributes;
  attributes.handled_files = KnownRights(abi);
  if (abi >= 6) {
    attributes.scoped =
        kScopeSignals | (hides_sockets ? kScopeAbstractSockets : 0);
  }
  // An older kernel takes the fields that it does not know if they are 0.
  const UniqueFd ruleset(static_cast<int>(
      ::syscall(kCreateRuleset, &attributes, sizeof(attributes), 0)));
  if (!ruleset.valid()) return Refused("landlock_create_ruleset");
  for (const PathRule& rule : rules) {
    RETURN_IF_ERROR(AddRule(ruleset.get(), rule, attributes.handled_files));
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return Refused("no_new_privs");
  }
  if (::syscall(kRestrictSelf, ruleset.get(), 0) != 0) {
    return Refused("landlock_restrict_self");
  }
  return absl::OkStatus();
}

}  // namespace atl
