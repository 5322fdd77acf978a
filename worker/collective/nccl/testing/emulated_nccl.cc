#include "worker/collective/nccl/testing/emulated_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/status/check.h"
#include "base/sync/mutex.h"
#include "worker/collective/reduction.h"

namespace atl::collective {
namespace {

// How often a communicator reports ncclInProgress without need.
constexpr int kPolls = 3;
// An abort that takes longer waits for ever.
constexpr absl::Duration kAbortMax = absl::Minutes(1);

using Bytes = std::vector<char>;

enum class OpKind { kBroadcast, kReduce, kAllReduce, kReduceScatter, kAllGather };

// One collective call of a group, as its ranks arrive.
struct Meeting {
  std::map<int, Bytes> inputs;  // By rank.
  int left_count = 0;
};

struct Group;

// The arguments that each rank gave in a split, and the groups that it made.
struct SplitRound {
  std::map<int, std::pair<int, int>> given;  // By rank: color, key.
  std::map<int, std::shared_ptr<Group>> groups;  // By color.
};

struct Group {
  explicit Group(int n) : size(n) {}
  const int size;
  Mutex mutex;
  CondVar condition;
  std::vector<bool> joined ABSL_GUARDED_BY(mutex) = std::vector<bool>(size);
  // Ranks that made a first collective call, which waits for all of them.
  std::vector<bool> connected ABSL_GUARDED_BY(mutex) = std::vector<bool>(size);
  std::map<int64_t, Meeting> meetings ABSL_GUARDED_BY(mutex);
  std::map<std::pair<int, int>, std::deque<Bytes>> mail ABSL_GUARDED_BY(mutex);
  std::map<int64_t, SplitRound> splits ABSL_GUARDED_BY(mutex);
};

// A nonblocking call, as NCCL's own thread carries it out: `poll` is called until
// it returns true. An abort calls `aborted` instead.
struct Progress {
  std::function<bool()> poll;
  std::function<void()> aborted;
};

struct Member {
  std::shared_ptr<Group> group;
  int rank = 0;
  int world_rank = 0;
  std::atomic<bool> aborted{false};
  std::atomic<bool> ended{false};
  // Host side; one thread at a time uses a communicator, except its state.
  Mutex mutex;
  CondVar condition;
  Progress progress ABSL_GUARDED_BY(mutex);  // Null: idle.
  int polls ABSL_GUARDED_BY(mutex) = 0;
  int under_way ABSL_GUARDED_BY(mutex) = 0;  // Calls that have not ended.
  bool has_met = false;
  int64_t meeting_count = 0;
  int64_t split_count = 0;
};

std::atomic<int> failed_rank{-1};

}  // namespace
}  // namespace atl::collective

struct ncclComm {
  std::shared_ptr<atl::collective::Member> member;
};

namespace atl::collective {
namespace {

Mutex worlds_mutex;
int64_t world_count ABSL_GUARDED_BY(worlds_mutex) = 0;

// The world of an id. Never freed, like aborted communicators.
std::shared_ptr<Group> FindWorld(int64_t id, int size) {
  static auto& worlds = *new std::map<int64_t, std::shared_ptr<Group>>;
  MutexLock lock(&worlds_mutex);
  std::shared_ptr<Group>& world = worlds[id];
  if (world == nullptr) world = std::make_shared<Group>(size);
  CHECK_EQ(world->size, size);
  return world;
}

ncclComm_t NewComm(std::shared_ptr<Group> group, int rank, int world_rank) {
  // Kept, so that a use after the end is detected.
  static Mutex mutex;
  static auto& comms = *new std::vector<std::unique_ptr<ncclComm>>;
  auto comm = std::make_unique<ncclComm>();
  comm->member = std::make_shared<Member>();
  comm->member->group = std::move(group);
  comm->member->rank = rank;
  comm->member->world_rank = world_rank;
  MutexLock lock(&mutex);
  comms.push_back(std::move(comm));
  return comms.back().get();
}

Member& ToMember(ncclComm_t comm) {
  CHECK(comm != nullptr);
  CHECK(!comm->member->aborted && !comm->member->ended);
  return *comm->member;
}

// ncclCommGetAsyncError polls.
ncclResult_t Begin(Member& member, Progress progress) {
  MutexLock lock(&member.mutex);
  CHECK(member.progress.poll == nullptr);  // Called too early.
  member.progress = std::move(progress);
  member.polls = kPolls;
  return ncclInProgress;
}

bool IsIdle(Member& member) {
  MutexLock lock(&member.mutex);
  return member.under_way == 0;
}

void EndCall(Member& member) {
  MutexLock lock(&member.mutex);
  --member.under_way;
  member.condition.SignalAll();
}

bool AllJoined(Group& group, std::vector<bool> Group::*ranks) {
  MutexLock lock(&group.mutex);
  const std::vector<bool>& of = group.*ranks;
  return std::find(of.begin(), of.end(), false) == of.end();
}

template <typename F>
bool AwaitAborted(Member& member, F&& holds)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(member.group->mutex) {
  while (!holds()) {
    if (member.aborted) return false;
    member.group->condition.WaitWithTimeout(&member.group->mutex,
                                            absl::Milliseconds(1));
  }
  return true;
}

size_t AsBytes(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return 4;
    case ncclFloat64:
      return 8;
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

struct Collect {
  OpKind kind;
  const void* in;
  void* out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t operation = ncclSum;
  int root = 0;
};

void ReduceAll(const Collect& c, const Meeting& meeting, size_t begin,
               size_t count, void* out) {
  const DataType type = c.type == ncclFloat32   ? DataType::kF32
                        : c.type == ncclFloat64 ? DataType::kF64
                                                : DataType::kBf16;
  std::vector<const void*> inputs;
  for (const auto& [rank, bytes] : meeting.inputs) {
    inputs.push_back(bytes.data() + begin * AsBytes(c.type));
  }
  ReduceInputs(type,
               c.operation == ncclMax ? Reduction::kMax : Reduction::kSum,
               inputs, static_cast<int64_t>(count), out);
}

void Give(const Collect& c, const Meeting& meeting, int rank) {
  const size_t bytes = c.count * AsBytes(c.type);
  switch (c.kind) {
    case OpKind::kBroadcast:
      std::memcpy(c.out, meeting.inputs.at(c.root).data(), bytes);
      return;
    case OpKind::kAllGather:
      for (const auto& [r, input] : meeting.inputs) {
        std::memcpy(static_cast<char*>(c.out) + r * bytes, input.data(), bytes);
      }
      return;
    case OpKind::kReduce:
      if (rank == c.root) ReduceAll(c, meeting, 0, c.count, c.out);
      return;
    case OpKind::kAllReduce:
      return ReduceAll(c, meeting, 0, c.count, c.out);
    case OpKind::kReduceScatter:
      return ReduceAll(c, meeting, rank * c.count, c.count, c.out);
  }
}

void Meet(Member& member, const Collect& c, int64_t number) {
  Group& group = *member.group;
  const size_t count =
      c.kind == OpKind::kReduceScatter ? c.count * group.size : c.count;
  const char* const in = static_cast<const char*>(c.in);
  MutexLock lock(&group.mutex);
  Meeting& meeting = group.meetings[number];
  meeting.inputs[member.rank] = Bytes(in, in + count * AsBytes(c.type));
  group.condition.SignalAll();
  if (!AwaitAborted(member, [&] {
        return static_cast<int>(meeting.inputs.size()) == group.size;
      })) {
    return;
  }
  // Otherwise ranks make different calls.
  CHECK_EQ(meeting.inputs.begin()->second.size(),
           meeting.inputs[member.rank].size());
  Give(c, meeting, member.rank);
  if (++meeting.left_count == group.size) group.meetings.erase(number);
}

struct Post {
  bool is_send = false;
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
};

void Carry(Member& member, const Post& post) {
  Group& group = *member.group;
  char* const data = static_cast<char*>(post.data);
  MutexLock lock(&group.mutex);
  if (post.is_send) {
    group.mail[{member.rank, post.peer}].emplace_back(data, data + post.bytes);
    group.condition.SignalAll();
    return;
  }
  auto& mail = group.mail[{post.peer, member.rank}];
  if (!AwaitAborted(member, [&] { return !mail.empty(); })) return;
  CHECK_EQ(mail.front().size(), post.bytes);
  std::memcpy(data, mail.front().data(), post.bytes);
  mail.pop_front();
}

// Which collective kernels a device runs: all, or one at a time.
class Devices {
 public:
  void Limit(bool enabled) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    limited_ = enabled;
  }
  // NCCL reads its environment when it makes a communicator.
  void ReadOrder() ABSL_LOCKS_EXCLUDED(mutex_) {
    const char* const text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    MutexLock lock(&mutex_);
    ordered_ = text != nullptr && std::strcmp(text, "1") == 0;
  }
  int64_t Launched(int rank) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    waiting_[rank].push_back(++count_);
    condition_.SignalAll();
    return count_;
  }
  void Begin(Member& member, int64_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    std::deque<int64_t>& waiting = waiting_[member.world_rank];
    while (limited_ && !member.aborted &&
           !IsNext(member.world_rank, waiting, number)) {
      condition_.WaitWithTimeout(&mutex_, absl::Milliseconds(1));
    }
    waiting.erase(std::find(waiting.begin(), waiting.end(), number));
    running_[member.world_rank].push_back(number);
  }
  void End(int rank, int64_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    std::deque<int64_t>& running = running_[rank];
    running.erase(std::find(running.begin(), running.end(), number));
    condition_.SignalAll();
  }

 private:
  bool IsNext(int rank, const std::deque<int64_t>& waiting, int64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!running_[rank].empty()) return false;
    if (ordered_ || rank % 2 == 0) return waiting.front() == number;
    return waiting.size() > 1 && waiting.back() == number;
  }

  Mutex mutex_;
  CondVar condition_;
  bool limited_ ABSL_GUARDED_BY(mutex_) = false;
  bool ordered_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  // Numbers of kernels, by rank of the world, in the order of their launch.
  std::map<int, std::deque<int64_t>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::deque<int64_t>> running_ ABSL_GUARDED_BY(mutex_);
};
Devices& TheDevices() {
  static Devices& devices = *new Devices;
  return devices;
}

// Holds the function that a test runs in each abort of a split.
class AbortedSplits {
 public:
  void Set(std::function<void()> run) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    run_ = std::move(run);
  }
  void Run() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::function<void()> run;
    {
      MutexLock lock(&mutex_);
      run = run_;
    }
    if (run != nullptr) run();
  }

 private:
  Mutex mutex_;
  std::function<void()> run_ ABSL_GUARDED_BY(mutex_);
};
AbortedSplits& TheAbortedSplits() {
  static AbortedSplits& splits = *new AbortedSplits;
  return splits;
}

// The calls of a thread since ncclGroupStart.
struct Batch {
  int depth = 0;
  std::shared_ptr<Member> member;
  cudaStream_t stream = nullptr;
  bool meets = false;  // Has more than sends and receives.
  std::vector<std::function<void(Member&)>> sends, others;
  std::vector<std::shared_ptr<Member>> aborts;
};
thread_local Batch batch;

// An abort ends when the communicator's kernels have ended. They may be queued
// behind others.
void AwaitAbort(Member& member) {
  MutexLock lock(&member.mutex);
  CHECK(member.condition.AwaitWithTimeout(
      &member.mutex, kAbortMax, [&member] { return member.under_way == 0; }));
}

ncclResult_t EndBatch() {
  if (--batch.depth > 0) return ncclSuccess;
  Batch ended = std::exchange(batch, Batch());
  for (const std::shared_ptr<Member>& member : ended.aborts) {
    AwaitAbort(*member);
  }
  if (ended.member == nullptr) return ncclSuccess;
  const std::shared_ptr<Member> member = ended.member;
  const bool connects = ended.meets && !member->has_met;
  {
    MutexLock lock(&member->mutex);
    ++member->under_way;
  }
  if (connects) {
    member->has_met = true;
    MutexLock lock(&member->group->mutex);
    member->group->connected[member->rank] = true;
  }
  const auto poll = [member, ended, connects] {
    if (connects && !AllJoined(*member->group, &Group::connected)) return false;
    const int64_t number = TheDevices().Launched(member->world_rank);
    Launch(ended.stream, [member, ended, number] {
      TheDevices().Begin(*member, number);
      for (const auto& send : ended.sends) send(*member);
      for (const auto& other : ended.others) other(*member);
      TheDevices().End(member->world_rank, number);
      EndCall(*member);
    });
    return true;
  };
  // The mutex is held.
  return Begin(*member, {poll, [member = member.get()] {
                           --member->under_way;
                         }});
}

void AddTo(ncclComm_t comm, cudaStream_t stream) {
  Member& member = ToMember(comm);
  {
    MutexLock lock(&member.mutex);
    CHECK(member.progress.poll == nullptr);  // Called too early.
  }
  CHECK(batch.member == nullptr || batch.member == comm->member);
  batch.member = comm->member;
  batch.stream = stream;
}

ncclResult_t AddCollect(ncclComm_t comm, cudaStream_t stream,
                        const Collect& collect) {
  ++batch.depth;
  AddTo(comm, stream);
  batch.meets = true;
  const int64_t number = batch.member->meeting_count++;
  batch.others.push_back(
      [=](Member& member) { Meet(member, collect, number); });
  return EndBatch();
}

ncclResult_t AddPost(ncclComm_t comm, cudaStream_t stream, const Post& post) {
  ++batch.depth;
  AddTo(comm, stream);
  CHECK(post.peer >= 0 && post.peer < batch.member->group->size);
  CHECK_NE(post.peer, batch.member->rank);
  (post.is_send ? batch.sends : batch.others).push_back([=](Member& member) {
    Carry(member, post);
  });
  return EndBatch();
}

// The groups of a split, once all ranks have given their colors.
bool TakeSplit(Member& parent, int64_t number, ncclComm_t* made) {
  Group& group = *parent.group;
  MutexLock lock(&group.mutex);
  SplitRound& round = group.splits[number];
  if (static_cast<int>(round.given.size()) < group.size) return false;
  const int color = round.given[parent.rank].first;
  if (color == NCCL_SPLIT_NOCOLOR) return true;
  std::vector<std::pair<int, int>> members;  // Key, rank.
  for (const auto& [rank, given] : round.given) {
    if (given.first == color) members.emplace_back(given.second, rank);
  }
  std::sort(members.begin(), members.end());
  std::shared_ptr<Group>& of_color = round.groups[color];
  if (of_color == nullptr) {
    of_color = std::make_shared<Group>(static_cast<int>(members.size()));
  }
  int rank = 0;
  while (members[rank].second != parent.rank) ++rank;
  *made = NewComm(of_color, rank, parent.world_rank);
  return true;
}

}  // namespace

void FailCommunicators(int world_rank) { failed_rank = world_rank; }
void FailNoCommunicators() { failed_rank = -1; }
void OnAbortedSplit(std::function<void()> run) {
  TheAbortedSplits().Set(std::move(run));
}
void RunOneKernelAtATime(bool enabled) { TheDevices().Limit(enabled); }

}  // namespace atl::collective

extern "C" {

using atl::MutexLock;
using atl::collective::AddCollect;
using atl::collective::AddPost;
using atl::collective::IsIdle;
using atl::collective::Member;
using atl::collective::OpKind;
using atl::collective::TheDevices;
using atl::collective::ToMember;

const char* ncclGetErrorString(ncclResult_t) { return "an emulated error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  MutexLock lock(&atl::collective::worlds_mutex);
  const int64_t number = ++atl::collective::world_count;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  CHECK_EQ(config->blocking, 0);
  int64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const auto world = atl::collective::FindWorld(number, size);
  *comm = atl::collective::NewComm(world, rank, rank);
  {
    MutexLock lock(&world->mutex);
    CHECK(!world->joined[rank]);
    world->joined[rank] = true;
  }
  TheDevices().ReadOrder();
  const auto poll = [world] {
    return atl::collective::AllJoined(*world, &atl::collective::Group::joined);
  };
  return atl::collective::Begin(*(*comm)->member, {poll, [] {}});
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t* made, ncclConfig_t* config) {
  CHECK_EQ(config->blocking, 0);
  Member& member = ToMember(comm);
  CHECK(IsIdle(member));
  *made = nullptr;
  const int64_t number = member.split_count++;
  {
    MutexLock lock(&member.group->mutex);
    member.group->splits[number].given[member.rank] = {color, key};
  }
  const auto poll = [&member, number, made] {
    return atl::collective::TakeSplit(member, number, made);
  };
  // NCCL gives the unfinished communicator, even after a failure.
  const auto aborted = [&member, color, made] {
    atl::collective::TheAbortedSplits().Run();
    if (color == NCCL_SPLIT_NOCOLOR) return;
    *made = atl::collective::NewComm(std::make_shared<atl::collective::Group>(1),
                                     0, member.world_rank);
  };
  return atl::collective::Begin(member, {poll, aborted});
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  Member& member = ToMember(comm);
  *state = ncclSuccess;
  if (member.world_rank == atl::collective::failed_rank) {
    *state = ncclRemoteError;
    return ncclSuccess;
  }
  MutexLock lock(&member.mutex);
  if (member.progress.poll == nullptr) return ncclSuccess;
  *state = ncclInProgress;
  if (member.polls > 0) {
    --member.polls;
  } else if (member.progress.poll()) {
    member.progress = {};
    *state = ncclSuccess;
  }
  return ncclSuccess;
}

// In a group NCCL tells all communicators before it waits for any.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Member& member = ToMember(comm);
  member.aborted = true;
  {
    MutexLock lock(&member.mutex);
    if (member.progress.poll != nullptr) member.progress.aborted();
    member.progress = {};
  }
  if (atl::collective::batch.depth == 0) {
    atl::collective::AwaitAbort(member);
  } else {
    atl::collective::batch.aborts.push_back(comm->member);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return atl::collective::Begin(ToMember(comm), {[] { return true; }, [] {}});
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Member& member = ToMember(comm);
  CHECK(IsIdle(member));
  member.ended = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++atl::collective::batch.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return atl::collective::EndBatch(); }

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return AddCollect(comm, stream,
                    {.kind = OpKind::kBroadcast,
                     .in = in,
                     .out = out,
                     .count = count,
                     .type = type,
                     .root = root});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count,
                        ncclDataType_t type, ncclRedOp_t operation, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return AddCollect(
      comm, stream,
      {OpKind::kReduce, in, out, count, type, operation, root});
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return AddCollect(comm, stream,
                    {OpKind::kAllReduce, in, out, count, type, operation});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  return AddCollect(comm, stream,
                    {OpKind::kReduceScatter, in, out, count, type, operation});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return AddCollect(comm, stream, {OpKind::kAllGather, in, out, count, type});
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return AddPost(comm, stream,
                 {true, peer, const_cast<void*>(data),
                  count * atl::collective::AsBytes(type)});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return AddPost(comm, stream,
                 {false, peer, data, count * atl::collective::AsBytes(type)});
}

}  // extern "C"
