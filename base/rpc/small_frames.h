// Ends connections whose peers send messages in frames of a few bytes.
//
// gRPC keeps each DATA frame of a message as a slice until the whole message is
// there and is read. A slice takes 32 bytes, in a buffer that grows by half, and
// holds on to what was read with it. So a message in frames of one byte takes
// about 65 times its size (CVE-2026-84304), and gRPC's quota does not count the
// slices.
//
// Honest peers send frames of kilobytes, but for the last of a message. A frame
// that comes in pieces, as on a slow link, is one slice for each buffer that was
// read. A stream may hold kSlicesFree slices of any size. Beyond that they must
// have kSliceBytesMin on average, so slices take half as much as their bytes at
// most. Otherwise the connection ends, before the peer's next frame is read.
//
// gRPC has no option or hook for this. So two of its functions are replaced,
// which the linker does for a program that defines functions of the same names:
// the one that takes in a frame's bytes, and the public one by which it adds
// them to a stream's buffer. Both call gRPC's own.

#pragma once

#include <cstddef>

#include "grpc/slice.h"

namespace atl::rpc {

inline constexpr size_t kSlicesFree = 1024;
inline constexpr size_t kSliceBytesMin = 128;

// True if `unread`, what a stream holds, is in too many and too small slices.
// Pure.
bool HasSmallSlices(const grpc_slice_buffer& unread);

// From now on, for all connections of the process, also those that it dialled.
// With headers of another gRPC than 1.51 nothing is replaced, and this logs a
// warning. Thread-safe.
void EndSmallFrames();

}  // namespace atl::rpc
