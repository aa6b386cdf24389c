// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
)

// shrink writes a picture anew with 64 shades of each colour, which nobody sees, and
// as small as PNG can be.
func shrink(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	from, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return err
	}
	to := image.NewNRGBA(from.Bounds())
	for y := to.Rect.Min.Y; y < to.Rect.Max.Y; y++ {
		for x := to.Rect.Min.X; x < to.Rect.Max.X; x++ {
			r, g, b, _ := from.At(x, y).RGBA()
			to.SetNRGBA(x, y, color.NRGBA{R: shade(r), G: shade(g), B: shade(b), A: 0xff})
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, to); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// shade rounds 16 bits of a colour down to 6, and spreads them over 8.
func shade(c uint32) uint8 {
	six := uint8(c >> 10)
	return six<<2 | six>>4
}
