#include "pool/recovery.h"

#include <gtest/gtest.h>

namespace torchbeast {
namespace {

using Remedy = StreamError::Remedy;

class RecoveryTest : public ::testing::Test {
 protected:
  // The server is gone; returns what is logged.
  std::string Lose(bool others_answer = false) {
    recovery_.OnConnect();
    return recovery_.Apply({Remedy::kReconnect, "gone"}, others_answer).value_or("");
  }

  const StreamOptions stream_{"unix:/tmp/server", 2};
  ActorOptions options_;
  Recovery recovery_{stream_, options_};
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
    recovery_.OnConnect();
    recovery_.OnAnswer();
    const auto logged = recovery_.Apply({Remedy::kReconnect, "gone"}, false);
    EXPECT_EQ(logged, "Environment server at unix:/tmp/server: gone; connecting again");
    EXPECT_EQ(Lose(), "");
  }
}

TEST_F(RecoveryTest, OnlyAServerThatHasWorkedMayStayAwayAndOnlyWhileOthersAnswer) {
  options_.connect_timeout = std::chrono::milliseconds(0);
  EXPECT_THROW(Lose(/*others_answer=*/true), ServerFailure);
  recovery_.OnProgress();
  EXPECT_NE(Lose(/*others_answer=*/true).find("still away: gone"), std::string::npos);
  EXPECT_THROW(Lose(/*others_answer=*/false), ServerFailure);
}

TEST_F(RecoveryTest, AMoveIsNoTrouble) {
  options_.connect_timeout = std::chrono::milliseconds(0);
  recovery_.OnConnect();
  EXPECT_EQ(recovery_.Apply({Remedy::kMove, ""}, false), std::nullopt);
}

}  // namespace
}  // namespace torchbeast
