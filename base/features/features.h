// Features that a program has or a run needs, as bits of a fixed64. Pure.
//
// A server and an island send ProgramFeatures() when they register or join. A
// peer may take part in a run if PeerFeatures(sent) has every bit of
// RequiredFeatures(spec). A program therefore never guesses the meaning of a
// value that only a newer program knows.
//
// A bit never changes its meaning. A new value of an enum below RunSpec gets a
// new bit and a row in features.cc; features_test fails without one. Fields that
// only the coordinator reads need no bit: the spec that it sends to islands and
// servers is without them, so an older program may take part.

#pragma once

#include <cstdint>
#include <string>

#include "atoll/v1/run.pb.h"

namespace atl {

// Each value of these enums has a bit, in their order from the first on
// (features.cc); those that code names have a constant.
inline constexpr uint64_t kMergeWeightedMean = uint64_t{1} << 0;
inline constexpr uint64_t kMergeMda = uint64_t{1} << 7;
inline constexpr uint64_t kCodecF32 = uint64_t{1} << 8;
inline constexpr uint64_t kCodecTopK = uint64_t{1} << 14;
inline constexpr uint64_t kOuterSgd = uint64_t{1} << 15;
inline constexpr uint64_t kOuterFedavg = uint64_t{1} << 18;
inline constexpr uint64_t kDurabilityMachine = uint64_t{1} << 24;
inline constexpr uint64_t kTimingStrict = uint64_t{1} << 27;
inline constexpr uint64_t kScheduleTogether = uint64_t{1} << 29;
inline constexpr uint64_t kEager = uint64_t{1} << 31;

// Features that every program had before there were bits: data types, tensor
// classes, inner optimizers, data formats, weightings.
inline constexpr uint64_t kBasics = uint64_t{1} << 32;

// Identity; no spec requires these. The peer sends and checks Run.run_uid, and
// keeps and sends the newest LogPosition.
inline constexpr uint64_t kRunUid = uint64_t{1} << 33;
inline constexpr uint64_t kLogPosition = uint64_t{1} << 34;

// External data, and with it models that only their trainer knows.
inline constexpr uint64_t kDataExternal = uint64_t{1} << 35;

// Data by URL, in the order of its files.
inline constexpr uint64_t kDataByFile = uint64_t{1} << 36;

// Weights by samples or by steps.
inline constexpr uint64_t kWeightUnits = uint64_t{1} << 37;

// Tensors of the class buffer.
inline constexpr uint64_t kTensorBuffer = uint64_t{1} << 38;

// How messages are said; no spec requires these.
// A coordinator takes progress, acknowledged outcomes and the phase in
// HeartbeatRequest, and its answer tells the next interval.
inline constexpr uint64_t kReportingHeartbeat = uint64_t{1} << 39;
// A server takes plans without the runs that have not changed.
inline constexpr uint64_t kPlansOfChangedRuns = uint64_t{1} << 40;
// A coordinator takes reports of changes.
inline constexpr uint64_t kReportsOfChanges = uint64_t{1} << 41;
// A server takes changes of runs' plans. Needs kPlansOfChangedRuns.
inline constexpr uint64_t kPlansOfChangedParts = uint64_t{1} << 42;

// No program has it: the spec has a value or a field that this program does
// not know.
inline constexpr uint64_t kUnknown = uint64_t{1} << 63;

// The features of a program of before there were bits.
inline constexpr uint64_t kBaseFeatures = (uint64_t{1} << 33) - 1;

uint64_t ProgramFeatures();

// The features of a peer that sent `sent`; 0 gives kBaseFeatures.
uint64_t PeerFeatures(uint64_t sent);

// The features that a peer needs to take part in a run with `spec`. An
// UNSPECIFIED value needs what it means. Has kUnknown if `spec` has an enum
// value or a field that this program does not know.
uint64_t RequiredFeatures(const v1::RunSpec& spec);

// The names of the bits in words: "merge rule mda, codec top_k". Bits without
// a name give "feature 40". Empty for 0.
std::string DescribeFeatures(uint64_t features);

}  // namespace atl
