#include "pool/recovery.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace torchbeast {
namespace {

using namespace std::chrono_literals;
using Remedy = StreamError::Remedy;

// The text of the ServerFailure that `function` throws; empty if it throws none.
std::string FailureOf(const std::function<void()>& function) {
  try {
    function();
  } catch (const ServerFailure& failure) {
    return failure.what();
  }
  return "";
}

class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() { options_.connect_timeout = 600s; }

  // A stream begins and ends `after` later; returns what is logged.
  std::string Lose(std::chrono::seconds after = 0s, bool others_answer = false,
                   const std::string& reason = "gone") {
    recovery_.OnConnect(now_);
    now_ += after;
    return recovery_.Apply({Remedy::kReconnect, reason}, others_answer, now_).value_or("");
  }

  // Environment 1 fails `after` the last failure.
  std::string Count(std::chrono::seconds after, const std::string& text = "its reward is nan") {
    rpcenv::Failure failure;
    failure.set_environment(1);
    failure.set_text(text);
    now_ += after;
    return recovery_.Count(failure, /*task=*/3, now_);
  }

  const StreamOptions stream_{"unix:/tmp/server", 2};
  ActorOptions options_;
  Recovery recovery_{stream_, options_};
  Clock::time_point now_ = Clock::now();
};

TEST_F(RecoveryTest, OnlyAServerThatRefusesEndsTheRun) {
  for (auto code : {grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::INVALID_ARGUMENT,
                    grpc::StatusCode::UNIMPLEMENTED, grpc::StatusCode::UNAUTHENTICATED,
                    grpc::StatusCode::PERMISSION_DENIED}) {
    const StreamError error = recovery_.Explain({code, "why"});
    EXPECT_EQ(error.remedy(), Remedy::kEndRun) << code;
    EXPECT_STREQ(error.what(), "it refuses this actor pool: why");
  }
  for (auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED,
                    grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::DEADLINE_EXCEEDED,
                    grpc::StatusCode::INTERNAL, grpc::StatusCode::DATA_LOSS}) {
    const StreamError error = recovery_.Explain({code, "why"});
    EXPECT_EQ(error.remedy(), Remedy::kReconnect) << code;
    EXPECT_STREQ(error.what(), "why");
  }
  EXPECT_EQ(recovery_.Explain(grpc::Status::OK).remedy(), Remedy::kReconnect);
}

TEST_F(RecoveryTest, WaitsLongerFromAttemptToAttempt) {
  for (const int64_t expected : {100, 200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(recovery_.NextBackoff().count(), expected);
  }
  recovery_.OnProgress();
  EXPECT_EQ(recovery_.NextBackoff().count(), 100);
}

TEST_F(RecoveryTest, TroubleIsLoggedOnce) {
  for (int trouble = 0; trouble < 2; ++trouble) {
    recovery_.OnProgress();
    recovery_.OnConnect(now_);
    recovery_.OnAnswer();
    const auto logged = recovery_.Apply({Remedy::kReconnect, "gone"}, false, now_);
    EXPECT_EQ(logged, "Environment server at unix:/tmp/server: gone; connecting again");
    EXPECT_EQ(Lose(), "");
  }
}

TEST_F(RecoveryTest, AServerThatHasNotAnsweredYetIsLoggedAfterAWhile) {
  EXPECT_EQ(Lose(29s), "");
  EXPECT_EQ(Lose(1s),
            "Environment server at unix:/tmp/server: no answer for 30 s: gone; connecting again");
}

TEST_F(RecoveryTest, OnlyAServerThatHasWorkedMayStayAwayAndOnlyWhileOthersAnswer) {
  EXPECT_THROW(Lose(600s, /*others_answer=*/true), ServerFailure);
  recovery_.OnProgress();
  EXPECT_NE(Lose(600s, /*others_answer=*/true).find("still away: gone"), std::string::npos);
  EXPECT_THROW(Lose(600s, /*others_answer=*/false), ServerFailure);
}

TEST_F(RecoveryTest, TheEndNamesTheReasonBefore) {
  EXPECT_EQ(Lose(1s, false, "refused"), "");
  EXPECT_EQ(FailureOf([&] { Lose(599s); }),
            "No environment server answered at unix:/tmp/server within 600 s: gone; before that: "
            "refused");
}

TEST_F(RecoveryTest, AMoveIsNoTrouble) {
  recovery_.OnConnect(now_);
  EXPECT_EQ(recovery_.Apply({Remedy::kMove, ""}, false, now_ + 600s), std::nullopt);
}

TEST_F(RecoveryTest, TheTimeBeforeANewAddressDoesNotCount) {
  EXPECT_EQ(recovery_.OnConnect(now_), now_ + 600s);
  EXPECT_EQ(recovery_.OnConnect(now_ + 10s), now_ + 600s);
  recovery_.OnNewAddress();
  EXPECT_EQ(recovery_.OnConnect(now_ + 20s), now_ + 620s);
}

TEST_F(RecoveryTest, OnlyFailuresOfTheLastTenMinutesCount) {
  options_.max_environment_failures = 3;
  EXPECT_NE(Count(0s).find("(1 of 3 failures within 600 s)"), std::string::npos);
  EXPECT_NE(Count(300s).find("(2 of 3 failures"), std::string::npos);
  // The first one was 601 seconds ago.
  EXPECT_NE(Count(301s).find("(2 of 3 failures"), std::string::npos);
  EXPECT_EQ(FailureOf([&] { Count(1s); }),
            "Environment 1 of unix:/tmp/server (game 3) failed at its step 0, 3 times within 600 "
            "s: its reward is nan");
}

TEST_F(RecoveryTest, TheLastFailureNamesTheErrorBeforeItsTraceback) {
  options_.max_environment_failures = 1;
  const std::string traceback =
      "Traceback (most recent call last):\n  File \"a.py\", line 3, in step\n    raise Odd\n"
      "a.Odd: no\nmore of it\n";
  EXPECT_EQ(FailureOf([&] { Count(0s, traceback); }),
            "Environment 1 of unix:/tmp/server (game 3) failed at its step 0, 1 times within 600 "
            "s: a.Odd: no\n" +
                traceback);
}

}  // namespace
}  // namespace torchbeast
