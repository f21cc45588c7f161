package kafka

import (
	"crypto/tls"
	"fmt"
	"io"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
)

func TestWhatIsAskedForOnceMore(t *testing.T) {
	for err, want := range map[error]bool{
		kafkago.Unknown: true, kafkago.LeaderNotAvailable: true, io.ErrUnexpectedEOF: true,
		kafkago.TopicAuthorizationFailed: false, kafkago.InvalidTopic: false, error(tls.RecordHeaderError{}): false,
	} {
		if again := !final(fmt.Errorf("list offsets: %w", err)); again != want {
			t.Errorf("%v: again %v, want %v", err, again, want)
		}
	}
}
