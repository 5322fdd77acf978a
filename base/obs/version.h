// The version of our programs.

#ifndef BASE_OBS_VERSION_H_
#define BASE_OBS_VERSION_H_

namespace atl {

inline constexpr char kProgramVersion[] = "0.1.0";

}  // namespace atl

#endif  // BASE_OBS_VERSION_H_
