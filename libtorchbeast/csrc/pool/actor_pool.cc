#include "pool/actor_pool.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/errors.h"

namespace torchbeast {

namespace {

// Thrown through the delivery thread when the pool stops.
struct Stopped {};

// Rollouts are large and of few sizes: keep what a full learner queue gives back.
constexpr size_t kIdleRolloutBytes = size_t{1} << 30;

}  // namespace

ActorPool::ActorPool(std::vector<StreamOptions> streams, ActorOptions options,
                     std::shared_ptr<BatchingQueue<TensorNest>> learner_queue,
                     std::shared_ptr<DynamicBatcher> inference_batcher, LogFunction log)
    : options_(std::move(options)),
      learner_queue_(std::move(learner_queue)),
      inference_batcher_(std::move(inference_batcher)),
      log_(std::move(log)) {
  if (streams.empty()) throw std::invalid_argument("No environment server addresses");
  if (options_.num_threads < 1) throw std::invalid_argument("num_threads must be >= 1");
  if (inference_batcher_->options().batch_dim != 1) {
    throw std::invalid_argument("The inference batcher must have batch_dim 1: actors are [T, B]");
  }
  for (const StreamOptions& stream : streams) {
    if (stream.num_environments < 1 || stream.num_environments > kMaxEnvironmentsPerStream) {
      throw std::invalid_argument("A stream carries 1 to " +
                                  std::to_string(kMaxEnvironmentsPerStream) +
                                  " environments, not " + std::to_string(stream.num_environments));
    }
    CheckAddress(stream.address);
  }
  const size_t num_threads = std::min<size_t>(options_.num_threads, streams.size());
  std::vector<std::shared_ptr<BufferPool>> buffers;
  for (size_t i = 0; i < num_threads; ++i) {
    completion_queues_.push_back(std::make_unique<grpc::CompletionQueue>());
    buffers.push_back(std::make_shared<BufferPool>(kIdleRolloutBytes / num_threads));
  }
  Actor::Listener* const listener = this;
  for (size_t i = 0; i < streams.size(); ++i) {
    const size_t thread = i % num_threads;
    actors_.push_back(std::make_shared<Actor>(std::move(streams[i]), options_, listener,
                                              completion_queues_[thread].get(), buffers[thread]));
  }
}

void ActorPool::CheckAddress(const std::string& address) const {
  if (address.empty() || IsLocal(address) || !options_.tls.empty()) return;
  throw std::invalid_argument("Refusing to connect to " + address +
                              " without TLS: it is another machine");
}

void ActorPool::SetAddress(size_t stream, const std::string& address) {
  CheckAddress(address);
  if (stream >= actors_.size()) {
    throw std::out_of_range("There is no stream " + std::to_string(stream) + " of " +
                            std::to_string(actors_.size()));
  }
  actors_[stream]->SetAddress(address);
}

bool ActorPool::IsOver() const {
  return learner_queue_->is_closed() || inference_batcher_->is_closed();
}

void ActorPool::Run(const Poll& poll) {
  if (started_.exchange(true)) throw std::runtime_error("ActorPool.run() was called before");
  std::vector<std::thread> threads;
  std::exception_ptr error;
  try {
    threads.emplace_back([this] { DeliveryLoop(); });
    for (const auto& queue : completion_queues_) {
      threads.emplace_back([this, queue = queue.get()] { EventLoop(queue); });
    }
    for (const auto& actor : actors_) actor->Start();
    Watch(poll);
  } catch (...) {
    error = std::current_exception();
  }
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    has_deliveries_.NotifyAll();
  }
  // No actor starts an operation after its Stop(): the queues can be shut down and drained.
  for (const auto& actor : actors_) actor->Stop();
  for (const auto& queue : completion_queues_) queue->Shutdown();
  for (std::thread& thread : threads) thread.join();
  for (const auto& actor : actors_) actor->Release();
  WriteLog();
  if (!error) {
    MutexLock lock(mutex_);
    error = first_error_;
  }
  if (error) std::rethrow_exception(error);
}

void ActorPool::Watch(const Poll& poll) {
  MutexLock lock(mutex_);
  failed_.Wait(
      mutex_, [this]() TB_REQUIRES(mutex_) { return first_error_ != nullptr || IsOver(); },
      [this, &poll] {
        if (poll) poll();
        for (const auto& actor : actors_) actor->CheckDeadline(Clock::now());
        WriteLog();
      });
}

void ActorPool::EventLoop(grpc::CompletionQueue* queue) {
  NameThisThread("pool-events");
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    // What has come in meanwhile goes into the same inference batch: one wake-up for all of it.
    std::vector<Actor::Submission> submissions;
    do {
      TB_OPERATION_COMPLETED(tag);
      const auto* event = static_cast<ClientStream::Tag*>(tag);
      if (auto submission = event->actor->OnCompletion(event->operation, ok)) {
        submissions.push_back(std::move(*submission));
      }
    } while (queue->AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC)) ==
             grpc::CompletionQueue::GOT_EVENT);
    if (!submissions.empty()) Submit(std::move(submissions));
  }
}

void ActorPool::Submit(std::vector<Actor::Submission> submissions) {
  try {
    inference_batcher_->Submit(std::move(submissions));
  } catch (const ClosedBatchingQueue&) {
    // The actors have been told that their inputs were dropped.
  } catch (...) {
    Fail(std::current_exception());
  }
}

void ActorPool::Deliver(std::shared_ptr<Actor> actor, std::vector<TensorNest> rollouts) {
  MutexLock lock(mutex_);
  deliveries_.emplace_back(std::move(actor), std::move(rollouts));
  has_deliveries_.NotifyOne();
}

void ActorPool::DeliveryLoop() {
  NameThisThread("pool-delivery");
  const Poll check_stopped = [this] {
    if (stopped_) throw Stopped();
  };
  try {
    while (true) {
      std::pair<std::shared_ptr<Actor>, std::vector<TensorNest>> delivery;
      {
        MutexLock lock(mutex_);
        has_deliveries_.Wait(
            mutex_, [this]() TB_REQUIRES(mutex_) { return stopped_ || !deliveries_.empty(); }, {});
        if (stopped_) return;
        delivery = std::move(deliveries_.front());
        deliveries_.pop_front();
      }
      for (TensorNest& rollout : delivery.second) {
        learner_queue_->Enqueue(std::move(rollout), check_stopped);
        count_ += options_.unroll_length;
      }
      if (auto submission = delivery.first->OnDelivered()) {
        std::vector<Actor::Submission> submissions;
        submissions.push_back(std::move(*submission));
        Submit(std::move(submissions));
      }
    }
  } catch (const Stopped&) {
  } catch (const ClosedBatchingQueue&) {
  } catch (...) {
    Fail(std::current_exception());
  }
}

void ActorPool::Log(LogLevel level, const std::string& message) {
  MutexLock lock(mutex_);
  messages_.emplace_back(level, message);
}

void ActorPool::WriteLog() {
  std::vector<std::pair<LogLevel, std::string>> messages;
  {
    MutexLock lock(mutex_);
    messages.swap(messages_);
  }
  for (const auto& [level, message] : messages) log_(level, message);
}

bool ActorPool::HasProgress() const {
  const Clock::time_point now = Clock::now();
  return std::any_of(actors_.begin(), actors_.end(), [&](const auto& actor) {
    const Clock::time_point last = actor->last_progress();
    return last != Clock::time_point() && last > now - options_.connect_timeout;
  });
}

void ActorPool::Fail(std::exception_ptr error) {
  // What follows from closing is no error.
  if (stopped_ || IsOver()) return;
  MutexLock lock(mutex_);
  if (!first_error_) first_error_ = std::move(error);
  failed_.NotifyAll();
}

}  // namespace torchbeast
