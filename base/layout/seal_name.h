// Which seal a message means, whether it has the seal's contents or not. Pure.
// Thread-safe.

#pragma once

#include "atoll/v1/plan.pb.h"

namespace atl {

// True if both are of the same attempt at a round, and before or after its
// VERDICT.
inline bool IsSameSeal(const v1::Seal& a, const v1::Seal& b) {
  return a.fragment() == b.fragment() && a.version() == b.version() &&
         a.attempt() == b.attempt() && a.has_verdict() == b.has_verdict();
}

// Only the fields by which it is the same seal.
inline v1::Seal NameSeal(const v1::Seal& seal) {
  v1::Seal name;
  name.set_fragment(seal.fragment());
  name.set_version(seal.version());
  name.set_attempt(seal.attempt());
  if (seal.has_verdict()) name.mutable_verdict();
  return name;
}

}  // namespace atl
