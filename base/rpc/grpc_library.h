// Keeps gRPC's library running until the process ends.
//
// gRPC stops its threads with the last channel or server of a process. That
// takes up to ten seconds if a thread has just begun to poll. So the library is
// started once and never stopped.
//
// This also switches off the deadlock detection of Abseil's mutexes, which gRPC
// uses. Debian builds Abseil without NDEBUG, so each lock would go through one
// lock graph of the process, under one spinlock. Our own mutexes are different
// (base/sync), and TSan checks those.
//
// It also lets a peer open no more than kStreamsMax streams on a connection, each
// with no more than kHeaderBytesMax of headers, before it has acknowledged our
// SETTINGS. gRPC 1.51 sends a listener's own bounds there, and does not enforce
// them on a peer that never acknowledges them: such peers took a program's
// memory (SECURITY.md).
//
// The logs of gRPC and of protobuf go to our log, always at INFO: what matters
// is returned as a status, too. A remote caller can cause such lines without
// end, so there are few of a kind (LogFromLibrary).

#pragma once

namespace atl::rpc {

inline constexpr int kStreamsMax = 512;
// With 32 for each header. Also what a peer that announces no bound of its own
// is sent at most, so it has room for a status with details.
inline constexpr int kHeaderBytesMax = 8 << 10;

// Call it before the first channel or server is made. Thread-safe.
void KeepGrpcRunning();

}  // namespace atl::rpc
