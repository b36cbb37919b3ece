package lock

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

func TestTryIsRefusedUntilRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Fatalf("a held lock: %v, want ErrHeld", err)
	}
	first.Release()
	second, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}

func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	second, err := Wait(t.Context(), path, func() { waits++; first.Release() })
	if err != nil || waits != 1 {
		t.Fatalf("waited %d times, %v; want once and no error", waits, err)
	}
	defer second.Release()

	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Wait(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is given up: %v, want canceled", err)
	}
}
