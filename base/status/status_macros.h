// RETURN_IF_ERROR and ASSIGN_OR_RETURN, as in upstream Abseil: an error leaves
// the function at once, unchanged.

#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns `expr`, an absl::Status, if it is not OK.
#define RETURN_IF_ERROR(expr)                  \
  do {                                         \
    ::absl::Status atl_status_ = (expr);       \
    if (!atl_status_.ok()) return atl_status_; \
  } while (false)

#define ATL_STATUS_CONCAT_INNER_(a, b) a##b
#define ATL_STATUS_CONCAT_(a, b) ATL_STATUS_CONCAT_INNER_(a, b)

// Evaluates `rexpr`, an absl::StatusOr<T>. Returns its status if it is not OK,
// else moves its value to `lhs`, which may declare a variable. An `lhs` with a
// comma outside parentheses must be parenthesised.
#define ASSIGN_OR_RETURN(lhs, rexpr) \
  ATL_ASSIGN_OR_RETURN_(ATL_STATUS_CONCAT_(atl_statusor_, __LINE__), lhs, rexpr)

#define ATL_ASSIGN_OR_RETURN_(statusor, lhs, rexpr) \
  auto statusor = (rexpr);                          \
  if (!statusor.ok()) return statusor.status();     \
  lhs = *std::move(statusor)
