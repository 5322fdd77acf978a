// The version of our programs.

#pragma once

namespace atl {

inline constexpr char kProgramVersion[] = "0.1.0";

}  // namespace atl
