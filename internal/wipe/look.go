package wipe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"auspex/schemas"
)

// Path is where the metadata service takes reports.
const Path = "/wipe"

// MaxReport is how long one may be, in bytes.
const MaxReport = 4 << 20

// Sample reads blocks of a drive of a size, in bytes: the first and the last, where tables of partitions and of RAID are, and
// n at random. Nobody knows in advance which these will be.
func Sample(r io.ReaderAt, size int64, n int) *schemas.WipeBlocks {
	out := &schemas.WipeBlocks{Size: BlockSize, Offsets: offsets(size/BlockSize, n)}
	buf := aligned()
	for _, at := range out.Offsets {
		_, err := r.ReadAt(buf, at)
		switch {
		case err != nil:
			out.Unread = append(out.Unread, at)
			out.Message = err.Error()
		case blank(buf):
			out.Blank++
		default:
			out.Data = append(out.Data, at)
		}
	}
	return out
}

// offsets are those of the first and the last of some blocks, and of n others, in order.
func offsets(blocks int64, n int) []int64 {
	if blocks < 1 {
		return nil
	}
	n = min(n, mostBlocks-2)
	chosen := map[int64]bool{0: true, blocks - 1: true}
	if blocks <= int64(n)+2 {
		for b := range blocks {
			chosen[b] = true
		}
	}
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	random := mathrand.New(mathrand.NewChaCha8(seed))
	for int64(len(chosen)) < min(int64(n)+2, blocks) {
		chosen[random.Int64N(blocks)] = true
	}
	out := make([]int64, 0, len(chosen))
	for b := range chosen {
		out = append(out, b*BlockSize)
	}
	slices.Sort(out)
	return out
}

// blank reports whether a block is all zeros or all ones: what flash and disks have where nothing is written.
func blank(b []byte) bool {
	first := b[0]
	if first != 0 && first != 0xff {
		return false
	}
	word := binary.LittleEndian.Uint64([]byte{first, first, first, first, first, first, first, first})
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != word {
			return false
		}
	}
	return true
}

// Answer is what is said to a report.
type Answer struct {
	ID     string              `json:"id"`
	Proven bool                `json:"proven"`
	Drives []schemas.WipeDrive `json:"drives"`
}

// again is after how long a report is sent again that did not arrive, and twice as long each time after, until seldom.
const (
	again  = 100 * time.Millisecond
	seldom = 10 * time.Second
)

// Send tells a report to the metadata service at a URL, with the token of the workflow, until it is answered or ctx is done.
// A report that it refuses is an error at once. Errors have no token.
func Send(ctx context.Context, c *http.Client, url, token string, r *Report) (a Answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	for after := again; ; after = min(2*after, seldom) {
		var final bool
		if a, final, err = send(ctx, c, url, token, body); err == nil || final {
			return a, err
		}
		wait := time.NewTimer(after)
		select {
		case <-ctx.Done():
			wait.Stop()
			return a, err
		case <-wait.C:
		}
	}
}

func send(ctx context.Context, c *http.Client, url, token string, body []byte) (a Answer, final bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(url, "/")+Path, bytes.NewReader(body))
	if err != nil {
		return a, true, errors.New("the address of the metadata service is no URL")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return a, false, fmt.Errorf("tell the metadata service: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxReport))
	if err != nil {
		return a, false, fmt.Errorf("read the answer of the metadata service: %w", err)
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return a, true, json.Unmarshal(text, &a)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError:
		return a, false, fmt.Errorf("the metadata service answers %s", resp.Status)
	}
	const words = 300
	return a, true, fmt.Errorf("the metadata service answers %s: %s", resp.Status, strings.TrimSpace(string(text[:min(len(text), words)])))
}
