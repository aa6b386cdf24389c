// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/replays"
)

// kept is a step that is done, as a file of the directory of steps.
type kept struct {
	// Inputs is a sum of all that the result depends on.
	Inputs  string          `json:"inputs"`
	Seconds float64         `json:"seconds"`
	Result  json.RawMessage `json:"result"`
}

// maxKept bounds the file of a step, in bytes.
const maxKept = 256 << 20

// step returns what is kept of a step, if that is of the same inputs, which may be of
// any type; otherwise it does the step and keeps the result.
func step[T any](r *rehearsal, name string, inputs any, do func() (T, error)) (result T, err error) {
	sum, err := sumOf(name, inputs)
	if err != nil {
		return result, err
	}
	path := filepath.Join(r.Dir, name+".json")
	if k := readKept(path); k != nil && k.Inputs == sum && json.Unmarshal(k.Result, &result) == nil {
		r.say("%s: kept, it took %s", name, seconds(k.Seconds))
		return result, nil
	}
	r.Progress.Step("%s (%s of all)", name, r.left(name, true))
	begin := time.Now()
	if result, err = do(); err != nil {
		return result, err
	}
	took := time.Since(begin)
	r.paced(name, took)
	r.say("%s: done in %s, %s", name, took.Round(100*time.Millisecond), r.left(name, false))
	text, err := json.Marshal(result)
	if err != nil {
		return result, err
	}
	text, err = json.MarshalIndent(kept{Inputs: sum, Seconds: took.Seconds(), Result: text}, "", " ")
	if err != nil {
		return result, err
	}
	return result, replaceFile(path, text)
}

func (r *rehearsal) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// layout changes when the result of a step is written or measured otherwise.
const layout = 2

func sumOf(name string, inputs any) (string, error) {
	text, err := json.Marshal([]any{layout, name, inputs})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// readKept returns nil for what is absent or unreadable: the step is done again.
func readKept(path string) *kept {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var k kept
	if json.NewDecoder(io.LimitReader(f, maxKept)).Decode(&k) != nil {
		return nil
	}
	return &k
}

// replaceFile writes a file that is there as a whole or not at all.
func replaceFile(path string, text []byte) error {
	tmp := path + ".tmp"
	err := os.WriteFile(tmp, text, 0o666)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// program is what a result depends on of a binary.
type program struct {
	Sum  string   `json:"sum"` // of the file
	Args []string `json:"args"`
}

func programOf(b binary.Binary) (program, error) {
	f, err := os.Open(b.Path)
	if err != nil {
		return program{}, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return program{}, err
	}
	return program{hex.EncodeToString(sum.Sum(nil)), b.Args}, nil
}

// file is what tells a file of the recording from another.
type file struct {
	Path string    `json:"path"`
	Size int64     `json:"size"`
	Time time.Time `json:"time"`
}

// filesOf are those of a recording.
func filesOf(dir *replays.Dir) (all []file, err error) {
	err = filepath.WalkDir(dir.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir.Path, path)
		all = append(all, file{name, info.Size(), info.ModTime()})
		return err
	})
	return all, err
}
