#include "actor_pool.h"

#include <algorithm>
#include <cstring>

namespace torchbeast {

namespace {

// Thrown through a stream's thread when the pool stops.
struct Stopped {};

constexpr std::chrono::milliseconds kFirstBackoff{100};
constexpr std::chrono::milliseconds kLastBackoff{1000};

// The value of an integer action of one element, for the record's `last_action`; 0 for others.
int64_t ActionAsInt64(const LeafSpec& spec, const std::byte* data) {
  if (spec.shape.NumElements() != 1) return 0;
  if (spec.dtype == DType::kInt64) {
    int64_t value;
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  if (spec.dtype == DType::kInt32) {
    int32_t value;
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  return 0;
}

// (agent outputs, agent state) as inference returns them.
const TensorNest& Part(const DynamicBatcher::Slice& slice, size_t index) {
  const TensorNest& outputs = *slice.outputs;
  if (!outputs.is_sequence() || outputs.sequence().size() != 2) {
    throw std::invalid_argument("Inference must return (agent outputs, agent state), got " +
                                outputs.describe());
  }
  return outputs.sequence()[index];
}

}  // namespace

ActorPool::ActorPool(Options options, std::shared_ptr<BatchingQueue<TensorNest>> learner_queue,
                     std::shared_ptr<DynamicBatcher> inference_batcher, LogFunction log)
    : options_(std::move(options)),
      learner_queue_(std::move(learner_queue)),
      inference_batcher_(std::move(inference_batcher)),
      log_(std::move(log)),
      // Rollouts are large and few sizes: keep what a full learner queue gives back.
      pool_(std::make_shared<BufferPool>(size_t{1} << 30, options_.allocator)) {
  if (options_.unroll_length < 1) throw std::invalid_argument("unroll_length must be >= 1");
  if (options_.streams.empty()) throw std::invalid_argument("No environment server addresses");
  if (inference_batcher_->options().batch_dim != 1) {
    throw std::invalid_argument("The inference batcher must have batch_dim 1: actors are [T, B]");
  }
  for (const Stream& stream : options_.streams) {
    if (stream.num_environments < 1 || stream.num_environments > kMaxEnvironmentsPerStream) {
      throw std::invalid_argument("A stream carries 1 to 1024 environments, not " +
                                  std::to_string(stream.num_environments));
    }
    if (!CheckAddressIsLocal(stream.address) && options_.tls.empty()) {
      throw std::invalid_argument("Refusing to connect to " + stream.address +
                                  " without TLS: it is another machine");
    }
  }
}

void ActorPool::Run(const Poll& poll) {
  {
    MutexLock lock(mutex_);
    if (started_) throw std::runtime_error("ActorPool.run() was called before");
    started_ = true;
    running_ = static_cast<int64_t>(options_.streams.size());
  }
  std::vector<std::thread> threads;
  for (const Stream& stream : options_.streams) {
    threads.emplace_back([this, &stream] {
      try {
        RunStream(stream);
      } catch (const Stopped&) {
      } catch (const ClosedBatchingQueue&) {
      } catch (...) {
        Fail(std::current_exception());
      }
      MutexLock lock(mutex_);
      --running_;
      stream_ended_.NotifyAll();
    });
  }
  const Poll look_around = [&] {
    if (learner_queue_->is_closed() || inference_batcher_->is_closed()) Stop();
    if (poll) poll();
  };
  std::exception_ptr interrupted;
  try {
    MutexLock lock(mutex_);
    stream_ended_.Wait(
        mutex_, [this] { return running_ == 0 || first_error_ != nullptr; }, look_around);
  } catch (...) {
    interrupted = std::current_exception();
  }
  Stop();
  for (std::thread& thread : threads) thread.join();
  if (interrupted) std::rethrow_exception(interrupted);
  MutexLock lock(mutex_);
  if (first_error_) std::rethrow_exception(first_error_);
}

void ActorPool::CheckStopped() const {
  if (stopped_) throw Stopped();
}

void ActorPool::Fail(std::exception_ptr error) {
  MutexLock lock(mutex_);
  // What follows from stopping is no error.
  if (!stopped_ && !first_error_) first_error_ = std::move(error);
  stream_ended_.NotifyAll();
}

void ActorPool::Stop() {
  stopped_ = true;
  MutexLock lock(mutex_);
  for (EnvStream* connection : connections_) connection->Cancel();
}

void ActorPool::RunStream(const Stream& stream) {
  // Registers the connection for Stop(), also if it was called a moment ago.
  struct Registration {
    ActorPool* pool;
    EnvStream* connection;
    Registration(ActorPool* p, EnvStream* c) : pool(p), connection(c) {
      MutexLock lock(pool->mutex_);
      pool->connections_.insert(connection);
    }
    ~Registration() {
      MutexLock lock(pool->mutex_);
      pool->connections_.erase(connection);
    }
  };
  const Poll check_stopped = [this] { CheckStopped(); };
  int failures = 0;
  auto backoff = kFirstBackoff;
  while (true) {
    EnvStream connection(stream.address, options_.tls, stream.num_environments,
                         options_.newest_plane);
    const Registration registration(this, &connection);
    try {
      CheckStopped();
      connection.Open(options_.connect_timeout, check_stopped);
      backoff = kFirstBackoff;
      RunConnection(stream, &connection, &failures);
    } catch (const EnvironmentError& error) {
      CheckStopped();
      if (++failures >= options_.max_environment_failures) {
        throw std::runtime_error("An environment of " + stream.address + " failed " +
                                 std::to_string(failures) +
                                 " times in succession:\n" + error.what());
      }
      log_(LogLevel::kError, "An environment of " + stream.address + " failed (" +
                                 std::to_string(failures) + " of " +
                                 std::to_string(options_.max_environment_failures) +
                                 "), starting it again:\n" + error.what());
    } catch (const Disconnected& error) {
      CheckStopped();
      log_(LogLevel::kWarning, std::string(error.what()) + "; connecting again");
    } catch (const AsyncError&) {
      // The batcher was closed, or inference dropped the batch.
      if (inference_batcher_->is_closed()) return;
      throw;
    }
    for (auto waited = Clock::duration::zero(); waited < backoff; waited += kFirstBackoff) {
      CheckStopped();
      std::this_thread::sleep_for(kFirstBackoff);
    }
    backoff = std::min(backoff * 2, kLastBackoff);
  }
}

std::vector<DynamicBatcher::Slice> ActorPool::Infer(const std::vector<Rollout>& rollouts,
                                                    int64_t row,
                                                    const std::vector<TensorNest>& agent_states) {
  std::vector<TensorNest> inputs;
  inputs.reserve(rollouts.size());
  for (size_t e = 0; e < rollouts.size(); ++e) {
    inputs.push_back(
        TensorNest(TensorNest::Sequence{rollouts[e].EnvOutput(row), agent_states[e]}));
  }
  return inference_batcher_->Submit(std::move(inputs))->Wait([this] { CheckStopped(); });
}

void ActorPool::RunConnection(const Stream& stream, EnvStream* connection, int* failures) {
  const int64_t num_environments = stream.num_environments;
  const StepDecoder& decoder = connection->decoder();
  const Poll check_stopped = [this] { CheckStopped(); };

  std::vector<Rollout> rollouts;
  for (int64_t e = 0; e < num_environments; ++e) {
    rollouts.emplace_back(options_.unroll_length, decoder.spec(), pool_);
    rollouts.back().WriteEnvOutput(0, decoder, connection->reply(), e, /*last_action=*/0);
  }
  std::vector<TensorNest> agent_states(num_environments, options_.initial_agent_state);
  // The states before each rollout's first row.
  std::vector<TensorNest> initial_states = agent_states;

  std::vector<DynamicBatcher::Slice> slices = Infer(rollouts, 0, agent_states);
  // No action led to the very first row: it gets the first output, which the learner ignores.
  for (int64_t e = 0; e < num_environments; ++e) {
    rollouts[e].WriteAgentOutput(0, Part(slices[e], 0), slices[e].offset);
  }

  while (true) {
    for (int64_t row = 1; row <= options_.unroll_length; ++row) {
      // Row 0 of the first rollout was answered above, to learn the structure of the answer.
      if (slices.empty()) slices = Infer(rollouts, row - 1, agent_states);
      rpcenv::Request& request = connection->request();
      request.mutable_actions()->clear();
      std::vector<int64_t> last_actions(num_environments);
      for (int64_t e = 0; e < num_environments; ++e) {
        const DynamicBatcher::Slice& slice = slices[e];
        rollouts[e].WriteAgentOutput(row, Part(slice, 0), slice.offset);
        agent_states[e] = Part(slice, 1).map([&](const Tensor& state) {
          return CopySlice(state, 1, slice.offset, 1, *pool_);
        });
        const Tensor& action = Part(slice, 0).front();
        LeafSpec spec{action.dtype, {}};
        for (int i = 2; i < action.shape.rank(); ++i) spec.shape.Append(action.shape[i]);
        const std::byte* data = action.data + slice.offset * spec.NumBytes();
        last_actions[e] = ActionAsInt64(spec, data);
        request.mutable_actions()->append(reinterpret_cast<const char*>(data), spec.NumBytes());
        if (e == 0) *request.mutable_action_spec() = EncodeArraySpec(spec);
      }
      slices.clear();
      connection->Step();
      for (int64_t e = 0; e < num_environments; ++e) {
        rollouts[e].WriteEnvOutput(row, decoder, connection->reply(), e, last_actions[e]);
      }
    }
    std::vector<TensorNest> finished;
    for (int64_t e = 0; e < num_environments; ++e) {
      finished.push_back(
          TensorNest(TensorNest::Sequence{rollouts[e].Finish(), initial_states[e]}));
      rollouts[e].StartNext();
    }
    initial_states = agent_states;
    for (TensorNest& rollout : finished) {
      learner_queue_->Enqueue(std::move(rollout), check_stopped);
      count_ += options_.unroll_length;
    }
    finished.clear();
    *failures = 0;
  }
}

}  // namespace torchbeast
