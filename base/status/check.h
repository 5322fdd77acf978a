// CHECK and friends, with Abseil's names: assertions for our own bugs. CHECKs
// are on in every build, DCHECKs off with NDEBUG.
//
// A failed check prints file, line, condition and the streamed text to stderr,
// and aborts. Input from a peer, a disk or a flag must never fail one.

#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <type_traits>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace atl::check_internal {

// Collects the message of a failed check; its destructor aborts.
class Failure {
 public:
  Failure(const char* file, int line, const char* condition);
  [[noreturn]] ~Failure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives both arms of CHECK's conditional the type void.
struct Voidify {
  void operator&(std::ostream&) const {}
};

// Writes `value` if it is printable, an enum as its number.
template <typename T>
void Print(std::ostream& out, const T& value) {
  if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else {
    out << "(no operator<<)";
  }
}

// Returns "a == b (1 against 2)".
template <typename A, typename B>
std::unique_ptr<std::string> Describe(const A& a, const B& b,
                                      const char* condition) {
  std::ostringstream out;
  out << condition << " (";
  Print(out, a);
  out << " against ";
  Print(out, b);
  out << ")";
  return std::make_unique<std::string>(out.str());
}

inline const absl::Status& GetStatus(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& statusor) {
  return statusor.status();
}

}  // namespace atl::check_internal

#define CHECK(condition)                                                 \
  ABSL_PREDICT_TRUE(condition)                                           \
  ? (void)0                                                              \
  : ::atl::check_internal::Voidify() &                                   \
          ::atl::check_internal::Failure(__FILE__, __LINE__, #condition) \
              .stream()

// Each operand is evaluated once. The description is null when the check holds.
#define ATL_CHECK_OP_(a, op, b)                                              \
  while (                                                                    \
      const std::unique_ptr<std::string> atl_check_failure =                 \
          [](const auto& x, const auto& y) -> std::unique_ptr<std::string> { \
        if (ABSL_PREDICT_TRUE(x op y)) return nullptr;                       \
        return ::atl::check_internal::Describe(x, y, #a " " #op " " #b);     \
      }(a, b))                                                               \
  ::atl::check_internal::Failure(__FILE__, __LINE__,                         \
                                 atl_check_failure->c_str())                 \
      .stream()

#define CHECK_EQ(a, b) ATL_CHECK_OP_(a, ==, b)
#define CHECK_NE(a, b) ATL_CHECK_OP_(a, !=, b)
#define CHECK_LT(a, b) ATL_CHECK_OP_(a, <, b)
#define CHECK_LE(a, b) ATL_CHECK_OP_(a, <=, b)
#define CHECK_GT(a, b) ATL_CHECK_OP_(a, >, b)
#define CHECK_GE(a, b) ATL_CHECK_OP_(a, >=, b)

// Requires `expr`, an absl::Status or StatusOr, to be OK.
#define CHECK_OK(expr)                                                        \
  for (const ::absl::Status atl_check_status =                                \
           ::atl::check_internal::GetStatus(expr);                            \
       !atl_check_status.ok();)                                               \
  ::atl::check_internal::Failure(__FILE__, __LINE__, #expr " is OK").stream() \
      << atl_check_status << " "

#ifdef NDEBUG
#define ATL_DCHECK_OFF_ false&&
#else
#define ATL_DCHECK_OFF_ true&&
#endif

#define DCHECK(condition) CHECK(!(ATL_DCHECK_OFF_ !(condition)))
