// What one process of a world listens to: who joins, who dials, who goes.
//
// One thread accepts connections, does their handshakes, reads their first
// message, and watches the control connections to the other processes. Whoever
// has not proven in time that it knows the secret, and said what it wants, is
// sent away; when many are at it, so is the one who has been for longest. A
// connection that carries the bytes of a group is parked until the rank that it
// is for takes it.
// Thread-safe.

#ifndef WORKER_COLLECTIVE_TCP_PROCESS_HUB_H_
#define WORKER_COLLECTIVE_TCP_PROCESS_HUB_H_

#include <poll.h>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "worker/collective/group.h"
#include "worker/collective/remote.h"
#include "worker/collective/tcp/connection.h"
#include "worker/collective/tcp/message.h"
#include "worker/collective/tcp/socket.h"

namespace atl::collective {

// How long a hub waits, beside the deadlines that it is given. All > 0.
struct HubTimeouts {
  // From when a connection is accepted until it has said what it wants.
  absl::Duration hello = absl::Seconds(10);
  // Until a rank of another process is dialled, and knows who dials.
  absl::Duration dial = absl::Seconds(30);
  // Until a process that has joined has taken the roster.
  absl::Duration roster_send = absl::Seconds(10);
  // Until the thread has looked at all that has come.
  absl::Duration news = absl::Seconds(1);
};

class ProcessHub : public RemoteWorld {
 public:
  struct Identity {
    int process_index = 0;
    int process_count = 1;
    int rank_count = 1;
    std::string layout;
    bool calls_in_the_clear = false;
    int strangers_max = 1024;
    std::shared_ptr<const WorldKey> key;
    HubTimeouts timeouts = {};
    // Of timeouts.hello; outlives the hub.
    const Clock* clock = &SystemClock();
  };

  // Listens on `listener` from now on.
  static absl::StatusOr<std::unique_ptr<ProcessHub>> Create(Identity identity,
                                                            UniqueFd listener);
  ~ProcessHub() override;

  // --- While a world comes together -----------------------------------------

  // Process 0: waits until all have joined, tells them of each other, and
  // returns the table. `own` is its entry.
  //
  // DEADLINE_EXCEEDED: names the processes that did not come, and says who was
  // refused last, and why.
  absl::StatusOr<std::vector<ProcessEntry>> CollectRoster(ProcessEntry own,
                                                          absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The others: takes the connection to process 0, with what it said.
  void AdoptRoster(Connection control, std::vector<ProcessEntry> roster)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Dials those below and awaits those above, so that there is a control
  // connection between any two. From then on their ends end `world`, which
  // ends after this object has stopped.
  absl::Status ConnectAll(World* world, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Says goodbye and ends the thread. The world may end then.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- RemoteWorld
  // -------------------------------------------------------------

  absl::StatusOr<std::unique_ptr<RemoteLinks>> Connect(
      const std::string& group, int rank, const std::vector<int>& world_ranks,
      absl::Time deadline) override;
  void ReadNews() override ABSL_LOCKS_EXCLUDED(mutex_);
  void TellBroken(const absl::Status& status) override;
  void TellLeft(const std::string& group, int rank,
                int64_t call_count) override;

 private:
  // Dialled and not yet known. Of the thread alone.
  struct Stranger {
    Connection connection;
    absl::Time deadline;
    bool knows_secret = false;
    std::string buffer = {};
  };
  // A connection to another process.
  struct Control {
    Connection connection;
    std::string buffer = {};
    bool said_bye = false;
  };
  using LinkKey = std::tuple<std::string, int, int>;  // Group, from, to.

  ProcessHub(Identity identity, UniqueFd listener, UniqueFd waker);

  void Loop();
  // The thread cannot go on: ends the world, and whatever waits for others.
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void AcceptAll();
  // False: it is done with, known or refused.
  bool ReadStranger(Stranger& stranger) ABSL_LOCKS_EXCLUDED(mutex_);
  // Its first message; nullopt: it is not whole yet.
  absl::StatusOr<std::optional<Message>> ReadHello(Stranger& stranger);
  // Keeps it for whoever waits in vain.
  void NoteRefusal(const Stranger& stranger, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Admit(const Message& hello, Stranger& stranger)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AdmitJoin(const Message& hello, Stranger& stranger)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadControl(int process) ABSL_LOCKS_EXCLUDED(mutex_);
  void HandleControl(int process, const Message& message)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ControlEnded(int process) ABSL_LOCKS_EXCLUDED(mutex_);
  void TellAll(const Message& message) ABSL_LOCKS_EXCLUDED(mutex_);
  Message Hello(MessageType type) const;
  // Waits until `ready`, the world's or the thread's end, or the deadline, which
  // the message explains with `what`.
  absl::Status Await(absl::Time deadline, absl::FunctionRef<bool()> ready,
                     absl::FunctionRef<std::string()> what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until there is a connection to each other process.
  absl::Status AwaitAll(absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string MakeName(int process) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Identity identity_;
  const UniqueFd listener_;
  const UniqueFd waker_;
  std::thread thread_;

  std::list<Stranger> strangers_;  // Of the thread alone.

  Mutex mutex_;
  CondVar condition_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // Why the thread has ended.
  // Rounds of the thread: begun, ended, and up to which it does not wait.
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t ended_round_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t wanted_round_ ABSL_GUARDED_BY(mutex_) = 0;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  World* world_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<std::optional<ProcessEntry>> joined_ ABSL_GUARDED_BY(mutex_);
  std::vector<ProcessEntry> roster_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Control> controls_ ABSL_GUARDED_BY(mutex_);
  std::set<int> ended_ ABSL_GUARDED_BY(mutex_);  // Once complete.
  std::map<LinkKey, Connection> parked_ ABSL_GUARDED_BY(mutex_);
  std::string last_refusal_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_TCP_PROCESS_HUB_H_
